/* The functions for Python that find spans and gather them; see prefetch/_kernels.pyi. */
#include "span_calls.h"

#include "spans.h"

/* Take a one-dimensional int64 array of some length; -1 for any. */
static bool take_int64(PyObject *array, Py_buffer *view, int flags, Py_ssize_t length,
                       const char *name)
{
    if (!take(array, view, flags, 1, name))
        return false;
    if (has_type(view, 'i', 8) && (length < 0 || view->shape[0] == length))
        return true;
    PyErr_Format(PyExc_TypeError, "%s must be int64, as long as the others", name);
    give_back(view);
    return false;
}

static bool right_count(const char *name, Py_ssize_t expected, Py_ssize_t found)
{
    if (expected == found)
        return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, and %zd were given", name, expected,
                 found);
    return false;
}

static int64_t item(const Py_buffer *view, Py_ssize_t i)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)view->buf + 8 * i, 8);
    return value;
}

PyObject *locate(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments)
{
    (void)module;
    if (!right_count("locate", 5, num_arguments))
        return NULL;
    const Py_ssize_t page_bytes = PyLong_AsSsize_t(arguments[1]);
    if (page_bytes == -1 && PyErr_Occurred())
        return NULL;
    if (page_bytes < 256 || page_bytes > 65536) {
        PyErr_SetString(PyExc_ValueError, "page_bytes must be 256 to 65536");
        return NULL;
    }
    Py_buffer memory = {0}, pages = {0}, slots = {0}, spans = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[0], &memory, PyBUF_SIMPLE) == 0 &&
        take_int64(arguments[2], &pages, PyBUF_C_CONTIGUOUS, -1, "pages") &&
        take_int64(arguments[3], &slots, PyBUF_C_CONTIGUOUS, pages.shape[0], "slots") &&
        take(arguments[4], &spans, PyBUF_CONTIG, 2, "spans")) {
        const Py_ssize_t num = pages.shape[0];
        if (!has_type(&spans, 'i', 8) || spans.shape[0] != 4 || spans.shape[1] != num) {
            PyErr_SetString(PyExc_TypeError, "spans must be int64 (4, n)");
        } else {
            const struct mapping mapping = {memory.buf, (size_t)memory.len, (size_t)page_bytes};
            Py_ssize_t bad = -1;
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t i = 0; i < num && bad < 0; i++) {
                struct span key, value;
                if (!find_record(&mapping, item(&pages, i), item(&slots, i), &key, &value)) {
                    bad = i;
                    continue;
                }
                const int64_t found[4] = {(int64_t)key.begin, (int64_t)key.size,
                                          (int64_t)value.begin, (int64_t)value.size};
                for (Py_ssize_t row = 0; row < 4; row++)
                    memcpy((uint8_t *)spans.buf + 8 * (row * num + i), &found[row], 8);
            }
            Py_END_ALLOW_THREADS
            result = PyLong_FromSsize_t(bad);
        }
    }
    give_back(&memory);
    give_back(&pages);
    give_back(&slots);
    give_back(&spans);
    return result;
}

PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments)
{
    (void)module;
    if (!right_count("gather", 3, num_arguments))
        return NULL;
    Py_buffer memory = {0}, begins = {0}, sizes = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[0], &memory, PyBUF_SIMPLE) == 0 &&
        take_int64(arguments[1], &begins, PyBUF_C_CONTIGUOUS, -1, "begins") &&
        take_int64(arguments[2], &sizes, PyBUF_C_CONTIGUOUS, begins.shape[0], "sizes")) {
        const struct mapping mapping = {memory.buf, (size_t)memory.len, 1};
        const Py_ssize_t num = begins.shape[0];
        Py_ssize_t total = 0;
        bool fits = true;
        for (Py_ssize_t i = 0; i < num && fits; i++) {
            fits = is_inside(&mapping, item(&begins, i), item(&sizes, i)) &&
                   item(&sizes, i) <= PY_SSIZE_T_MAX - total;
            if (fits)
                total += (Py_ssize_t)item(&sizes, i);
        }
        if (!fits)
            PyErr_SetString(PyExc_ValueError, "a span lies outside of the memory");
        else if ((result = PyBytes_FromStringAndSize(NULL, total)) != NULL) {
            char *to = PyBytes_AsString(result);
            for (Py_ssize_t i = 0; i < num; i++) {
                memcpy(to, mapping.at + item(&begins, i), (size_t)item(&sizes, i));
                to += item(&sizes, i);
            }
        }
    }
    give_back(&memory);
    give_back(&begins);
    give_back(&sizes);
    return result;
}

bool take_spans(PyObject *memory, PyObject *begins, PyObject *sizes, struct held_spans *held)
{
    if (PyObject_GetBuffer(memory, &held->memory, PyBUF_SIMPLE) < 0 ||
        !take_int64(begins, &held->begins, PyBUF_C_CONTIGUOUS, -1, "begins") ||
        !take_int64(sizes, &held->sizes, PyBUF_C_CONTIGUOUS, held->begins.shape[0], "sizes"))
        return false;
    const struct mapping mapping = {held->memory.buf, (size_t)held->memory.len, 1};
    held->num = held->begins.shape[0];
    held->records = PyMem_Malloc((size_t)(held->num > 0 ? held->num : 1) * sizeof *held->records);
    if (held->records == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < held->num; i++) {
        const int64_t begin = item(&held->begins, i), size = item(&held->sizes, i);
        if (!is_inside(&mapping, begin, size)) {
            PyErr_SetString(PyExc_ValueError, "a span lies outside of the memory");
            return false;
        }
        held->records[i] = (struct record){mapping.at + begin, (size_t)size};
    }
    return true;
}

void give_back_spans(struct held_spans *held)
{
    PyMem_Free(held->records);
    give_back(&held->memory);
    give_back(&held->begins);
    give_back(&held->sizes);
}

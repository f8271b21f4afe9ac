/* The functions for Python that find spans and gather them; see prefetch/_kernels/_c.pyi. */
#include "py_spans.h"

#include "advise.h"

/* Take a one-dimensional int64 array of some length; -1 for any. */
static bool take_int64(PyObject *array, Py_buffer *view, int flags, Py_ssize_t length,
                       const char *name)
{
    if (!py_take_buffer(array, view, flags, 1, name))
        return false;
    if (py_has_type(view, 'i', 8) && (length < 0 || view->shape[0] == length))
        return true;
    PyErr_Format(PyExc_TypeError, "%s must be int64, as long as the others", name);
    py_release_buffer(view);
    return false;
}

static int64_t load_int64(const uint8_t *from, Py_ssize_t i)
{
    int64_t value;
    memcpy(&value, from + 8 * i, 8);
    return value;
}

static int64_t load_item(const Py_buffer *view, Py_ssize_t i)
{
    return load_int64(view->buf, i);
}

/* Return how many bytes a page has, or -1 with an exception. */
static Py_ssize_t check_page_bytes(PyObject *page_bytes)
{
    const Py_ssize_t size = PyLong_AsSsize_t(page_bytes);
    if (size >= 256 && size <= 65536)
        return size;
    if (size != -1 || !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "page_bytes must be 256 to 65536");
    return -1;
}

static bool take_spans(PyObject *array, Py_buffer *spans, Py_ssize_t num)
{
    if (!py_take_buffer(array, spans, PyBUF_CONTIG, 2, "spans"))
        return false;
    if (py_has_type(spans, 'i', 8) && spans->shape[0] == 4 && spans->shape[1] == num)
        return true;
    PyErr_SetString(PyExc_TypeError, "spans must be int64 (4, n)");
    return false;
}

PY_FUNCTION(py_locate)
{
    enum { MEMORY, PAGE_BYTES, PAGES, SLOTS, SPANS, NUM };
    PY_CHECK_ARITY("locate", NUM);
    const Py_ssize_t page_bytes = check_page_bytes(arguments[PAGE_BYTES]);
    if (page_bytes < 0)
        return NULL;
    Py_buffer memory = {0}, pages = {0}, slots = {0}, spans = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[MEMORY], &memory, PyBUF_SIMPLE) == 0 &&
        take_int64(arguments[PAGES], &pages, PyBUF_C_CONTIGUOUS, -1, "pages") &&
        take_int64(arguments[SLOTS], &slots, PyBUF_C_CONTIGUOUS, pages.shape[0], "slots") &&
        take_spans(arguments[SPANS], &spans, pages.shape[0])) {
        const Py_ssize_t num = pages.shape[0];
        const struct mapping mapping = {memory.buf, (size_t)memory.len, (size_t)page_bytes};
        Py_ssize_t bad = -1;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < num && bad < 0; i++) {
            struct span key, value;
            if (find_record(&mapping, load_item(&pages, i), load_item(&slots, i), &key, &value))
                store_spans((uint8_t *)spans.buf, (size_t)num, (size_t)i, &key, &value);
            else
                bad = i;
        }
        Py_END_ALLOW_THREADS
        result = PyLong_FromSsize_t(bad);
    }
    py_release_buffer(&memory);
    py_release_buffer(&pages);
    py_release_buffer(&slots);
    py_release_buffer(&spans);
    return result;
}

PY_FUNCTION(py_locate_ahead)
{
    enum { MEMORY, PAGE_BYTES, PAGES, SLOTS, BEGINS, SIZES, NUM };
    PY_CHECK_ARITY("locate_ahead", NUM);
    const Py_ssize_t page_bytes = check_page_bytes(arguments[PAGE_BYTES]);
    if (page_bytes < 0)
        return NULL;
    Py_buffer memory = {0}, pages = {0}, slots = {0}, begins = {0}, sizes = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[MEMORY], &memory, PyBUF_SIMPLE) == 0 &&
        take_int64(arguments[PAGES], &pages, PyBUF_C_CONTIGUOUS, -1, "pages") &&
        take_int64(arguments[SLOTS], &slots, PyBUF_C_CONTIGUOUS, pages.shape[0], "slots") &&
        take_int64(arguments[BEGINS], &begins, PyBUF_CONTIG, pages.shape[0], "begins") &&
        take_int64(arguments[SIZES], &sizes, PyBUF_CONTIG, pages.shape[0], "sizes")) {
        const struct mapping mapping = {memory.buf, (size_t)memory.len, (size_t)page_bytes};
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < pages.shape[0]; i++) {
            const struct span value =
                find_value_ahead(&mapping, load_item(&pages, i), load_item(&slots, i));
            const int64_t found[2] = {(int64_t)value.begin, (int64_t)value.size};
            memcpy((uint8_t *)begins.buf + 8 * i, &found[0], 8);
            memcpy((uint8_t *)sizes.buf + 8 * i, &found[1], 8);
        }
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    py_release_buffer(&memory);
    py_release_buffer(&pages);
    py_release_buffer(&slots);
    py_release_buffer(&begins);
    py_release_buffer(&sizes);
    return result;
}

PY_FUNCTION(py_advise)
{
    enum { MEMORY, BEGINS, SIZES, NUM };
    PY_CHECK_ARITY("advise", NUM);
    Py_buffer memory = {0}, begins = {0}, sizes = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[MEMORY], &memory, PyBUF_SIMPLE) == 0 &&
        take_int64(arguments[BEGINS], &begins, PyBUF_C_CONTIGUOUS, -1, "begins") &&
        take_int64(arguments[SIZES], &sizes, PyBUF_C_CONTIGUOUS, begins.shape[0], "sizes")) {
        const struct mapping mapping = {memory.buf, (size_t)memory.len, 1};
        /* A request waits where the device has enough to do. */
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < begins.shape[0]; i++)
            advise_span(&mapping, load_item(&begins, i), load_item(&sizes, i));
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    py_release_buffer(&memory);
    py_release_buffer(&begins);
    py_release_buffer(&sizes);
    return result;
}

/* Copy spans of a mapping together; begins and sizes are int64. */
static PyObject *join_spans(const struct mapping *mapping, const uint8_t *begins,
                            const uint8_t *sizes, Py_ssize_t num)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < num; i++) {
        const int64_t begin = load_int64(begins, i), size = load_int64(sizes, i);
        if (!is_inside(mapping, begin, size) || size > PY_SSIZE_T_MAX - total) {
            PyErr_SetString(PyExc_ValueError, "a span lies outside of the memory");
            return NULL;
        }
        total += (Py_ssize_t)size;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, total);
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AsString(bytes);
    for (Py_ssize_t i = 0; i < num; i++) {
        const size_t size = (size_t)load_int64(sizes, i);
        memcpy(to, mapping->bytes + load_int64(begins, i), size);
        to += size;
    }
    return bytes;
}

/* Take one half of the packed index: unsigned integers of whatever size holds them. */
static bool take_unsigned(PyObject *array, Py_buffer *view, const char *name)
{
    if (!py_take_buffer(array, view, PyBUF_C_CONTIGUOUS, 1, name))
        return false;
    if (py_element_type(view).kind == 'u')
        return true;
    PyErr_Format(PyExc_TypeError, "%s must be of unsigned integers", name);
    return false;
}

bool py_take_index(PyObject *const *arguments, struct held_index *held)
{
    const Py_ssize_t page_bytes = check_page_bytes(arguments[INDEX_PAGE_BYTES]);
    if (page_bytes < 0 ||
        PyObject_GetBuffer(arguments[INDEX_MEMORY], &held->memory, PyBUF_SIMPLE) < 0 ||
        !take_unsigned(arguments[INDEX_LEAVES], &held->leaves, "leaves") ||
        !take_unsigned(arguments[INDEX_FIRSTS], &held->firsts, "firsts"))
        return false;
    held->mapping =
        (struct mapping){held->memory.buf, (size_t)held->memory.len, (size_t)page_bytes};
    if (held->leaves.shape[0] == held->firsts.shape[0])
        return true;
    PyErr_SetString(PyExc_ValueError, "leaves and firsts differ in length");
    return false;
}

bool py_take_numbers(PyObject *numbers, PyObject *spans, struct held_numbers *held)
{
    if (!take_int64(numbers, &held->numbers, PyBUF_C_CONTIGUOUS, -1, "records") ||
        !take_spans(spans, &held->spans, held->numbers.shape[0]))
        return false;
    held->num = held->numbers.shape[0];
    held->records = PyMem_Malloc((size_t)held->num * sizeof *held->records);
    if (held->records == NULL)
        PyErr_NoMemory();
    return held->records != NULL;
}

void py_release_index(struct held_index *held)
{
    py_release_buffer(&held->memory);
    py_release_buffer(&held->leaves);
    py_release_buffer(&held->firsts);
}

void py_release_numbers(struct held_numbers *held)
{
    PyMem_Free(held->records);
    py_release_buffer(&held->numbers);
    py_release_buffer(&held->spans);
}

static struct numbers view_numbers(const Py_buffer *view)
{
    return (struct numbers){view->buf, (size_t)view->shape[0], (size_t)view->itemsize};
}

static struct index view_index(const struct held_index *held)
{
    return (struct index){view_numbers(&held->leaves), view_numbers(&held->firsts)};
}

bool py_find_record(const struct held_index *held, int64_t number, struct record *record)
{
    const struct index index = view_index(held);
    uint8_t bytes[8], spans[4 * 8];
    memcpy(bytes, &number, sizeof bytes);
    if (find_records(&held->mapping, &index, bytes, 1, spans) == 0)
        return false;
    *record =
        (struct record){held->mapping.bytes + load_int64(spans, 2), (size_t)load_int64(spans, 3)};
    return true;
}

Py_ssize_t py_find_records(const struct held_index *index, struct held_numbers *held)
{
    const struct index packed = view_index(index);
    const size_t num = (size_t)held->num;
    uint8_t *spans = held->spans.buf;
    const size_t found = find_records(&index->mapping, &packed, held->numbers.buf, num, spans);
    for (size_t i = 0; i < found; i++) {
        const int64_t begin = load_int64(spans + 16 * num, (Py_ssize_t)i);
        const int64_t size = load_int64(spans + 24 * num, (Py_ssize_t)i);
        held->records[i] = (struct record){index->mapping.bytes + begin, (size_t)size};
    }
    return (Py_ssize_t)found;
}

PyObject *py_gather_keys(const struct held_index *index, const struct held_numbers *held)
{
    const uint8_t *spans = held->spans.buf;
    return join_spans(&index->mapping, spans, spans + 8 * held->num, held->num);
}

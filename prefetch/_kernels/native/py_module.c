/* prefetch._kernels._c: the kernels for Python. The signatures are in prefetch/_kernels/_c.pyi. */
#include "jpeg_stamp.h"
#include "philox.h"
#include "py_arguments.h"
#include "py_digest.h"
#include "py_fill.h"
#include "py_mix.h"
#include "py_resize.h"
#include "py_jpeg.h"
#include "py_spans.h"
#include "py_sums.h"

static PY_FUNCTION(py_philox_words)
{
    enum { KEY0, KEY1, RECORDS, BLOCKS, WORDS, NUM };
    PY_CHECK_ARITY("philox_words", NUM);
    const unsigned long key0 = PyLong_AsUnsignedLong(arguments[KEY0]);
    const unsigned long key1 = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(arguments[KEY1]);
    Py_buffer records = {0}, blocks = {0}, words = {0};
    PyObject *result = NULL;
    if (!PyErr_Occurred() &&
        py_take_buffer(arguments[RECORDS], &records, PyBUF_C_CONTIGUOUS, 1, "records") &&
        py_take_buffer(arguments[BLOCKS], &blocks, PyBUF_C_CONTIGUOUS, 1, "blocks") &&
        py_take_buffer(arguments[WORDS], &words, PyBUF_CONTIG, 2, "words")) {
        const Py_ssize_t num_words = NUM_WORDS + 4 * blocks.shape[0];
        if (!py_has_type(&records, 'i', 8) || !py_has_type(&blocks, 'i', 8))
            PyErr_SetString(PyExc_TypeError, "records must be int64, and blocks");
        else if (py_check_words(&words, 1, (size_t)num_words) && words.shape[1] == num_words &&
                 words.shape[0] == records.shape[0]) {
            draw_words((uint32_t)key0, (uint32_t)key1, records.buf, (size_t)records.shape[0],
                       blocks.buf, (size_t)blocks.shape[0], words.buf);
            result = Py_NewRef(Py_None);
        } else if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "records and words differ in length");
    }
    py_release_buffer(&records);
    py_release_buffer(&blocks);
    py_release_buffer(&words);
    return result;
}

#define PY_METHOD(name, doc) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, doc}

static PyMethodDef functions[] = {
    PY_METHOD(fill,
              "fill(values, words, data, labels, recipe, /)\n--\n\n"
              "Fill part of a batch from its records, as prefetch._kernels.reference.fill does."),
    PY_METHOD(locate, "locate(memory, page_bytes, pages, slots, spans, /)\n--\n\n"
                      "Find keys and values of records in the mapping of an LMDB file."),
    PY_METHOD(locate_ahead,
              "locate_ahead(memory, page_bytes, pages, slots, begins, sizes, /)\n--\n\n"
              "Find where values lie by their leaf pages alone; size 0 where one is damaged."),
    PY_METHOD(advise, "advise(memory, begins, sizes, /)\n--\n\n"
                      "Ask the system to read spans of a mapped file, without waiting for it."),
    PY_METHOD(
        fill_records,
        "fill_records(memory, page_bytes, leaves, firsts, recipe, parts, /)\n--\n\n"
        "Find records through the packed index and fill parts of batches from them, each given as "
        "(records, spans, words, data, labels). Stores where the records are in spans; returns for "
        "each the position of the first record that cannot be found, or -1, the outcomes, and the "
        "keys, one directly after the other."),
    PY_METHOD(raw_shape,
              "raw_shape(memory, page_bytes, leaves, firsts, record, is_uint8, /)\n--\n\n"
              "Find a record through the packed index and return its channels, height and width, "
              "if it is a raw one with nothing wrong for a batch of uint8 or of floats; None for "
              "any other."),
    PY_METHOD(philox_words,
              "philox_words(key0, key1, records, blocks, words, /)\n--\n\n"
              "Draw the random words of each record under a key of two words, as "
              "prefetch._plan.draws.CounterDraws does."),
    PY_METHOD(fill_image,
              "fill_image(image, words, row, recipe, part, /)\n--\n\n"
              "Fill one row from a decoded image, or a part of it, as "
              "prefetch._kernels.reference.fill_image does."),
    PY_METHOD(resize,
              "resize(image, box, size, part, interpolation, out, /)\n--\n\n"
              "Resize a box of an image and store a part of the result, as of "
              "prefetch._kernels.resize.resize."),
    PY_METHOD(find_taps,
              "find_taps(sizes, interpolation, firsts, coefficients, /)\n--\n\n"
              "Store what an axis is resampled by, as prefetch._kernels.resize.find_taps does, and "
              "return the number of taps."),
    PY_METHOD(
        find_bytes,
        "find_bytes(values, shape, /)\n--\n\n"
        "Find the pixels of raw records of a shape, as prefetch._kernels.sums.find_bytes does."),
    PY_METHOD(add_up, "add_up(images, first, sums, /)\n--\n\n"
                      "Add images to sums, as prefetch._kernels.sums.add_up does."),
    PY_METHOD(digest, "digest(content, /)\n--\n\n"
                      "Return 16 bytes that tell contents apart, as prefetch._kernels.digest does."),
    PY_METHOD(splice_jpeg,
              "splice_jpeg(data, top, left, height, width, to, /)\n--\n\n"
              "Make a small JPEG file of those segments of a file with restart markers that a "
              "window needs."),
    PY_METHOD(find_restarts,
              "find_restarts(data, /)\n--\n\n"
              "Return how many MCUs are between the restart markers of a JPEG file that can be "
              "decoded in part, and whether it has a stamp; None for any other."),
    PY_METHOD(add_restarts,
              "add_restarts(data, most, /)\n--\n\n"
              "Return a JPEG file of the same coefficients with restart markers and a stamp, or why "
              "there is none."),
    PY_METHOD(mix_rows, "mix_rows(rows, lam, /)\n--\n\n"
                        "Mix each row with that at the same place from the end by weighted sums, "
                        "as prefetch._kernels.mixing.mix_rows does."),
    PY_METHOD(swap_boxes, "swap_boxes(rows, top, bottom, left, right, /)\n--\n\n"
                          "Exchange a box of each row with that of its partner, as "
                          "prefetch._kernels.mixing.swap_boxes does."),
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "prefetch._kernels._c",
    .m_doc = "The kernels in C; prefetch._kernels.reference is their twin and their description.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__c(void)
{
    choose_loops();
    choose_checksums();
    return PyModuleDef_Init(&definition);
}

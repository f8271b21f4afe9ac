/* The functions for Python that fill rows. What they do is in prefetch/_kernels/reference.py; here
 * buffers are held while the GIL is released. */
#include "py_fill.h"

#include <stdlib.h>

#include "py_spans.h"

static bool describe_labels(const Py_buffer *view, struct part *part)
{
    const struct element_type type = py_element_type(view);
    part->labels = view->buf;
    part->label_step = view->strides[0];
    part->label_size = (size_t)type.size;
    part->label_kind = type.kind == 'f' ? FLOAT_LABELS : INTEGER_LABELS;
    if (type.kind != '?')
        return true;
    PyErr_SetString(PyExc_TypeError, "labels must be of an integer type or a float of 2, 4 or 8 "
                                     "bytes, in the machine's byte order");
    return false;
}

static PyObject *numbers_as_tuple(const struct fault *fault)
{
    PyObject *numbers = PyTuple_New(fault->num_numbers); /* what Fault.numbers holds */
    for (int i = 0; numbers != NULL && i < fault->num_numbers; i++) {
        PyObject *number = PyLong_FromLongLong(fault->numbers[i]);
        if (number == NULL || PyTuple_SetItem(numbers, i, number) < 0)
            Py_CLEAR(numbers);
    }
    return numbers;
}

static PyObject *outcomes_as_list(const struct outcome *outcomes, Py_ssize_t num)
{
    PyObject *list = PyList_New(num);
    for (Py_ssize_t i = 0; list != NULL && i < num; i++) {
        const struct fault *fault = &outcomes[i].fault;
        /* Outcome: (position, reason, numbers). */
        PyObject *item = Py_BuildValue("(nlN)", (Py_ssize_t)outcomes[i].position,
                                       (long)fault->reason, numbers_as_tuple(fault));
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The buffers of a part, and what the kernel needs to know of them. */
struct held_part {
    struct part part;
    Py_buffer words, data, labels;
    struct outcome *outcomes;
};

static void release_part(struct held_part *held)
{
    PyMem_Free(held->outcomes);
    py_release_buffer(&held->words);
    py_release_buffer(&held->data);
    py_release_buffer(&held->labels);
}

/* Take all of a part but its records; also where that fails, release_part() must follow. */
static bool take_part(Py_ssize_t num, PyObject *words, PyObject *data, PyObject *labels,
                      struct held_part *held)
{
    struct part *part = &held->part;
    if (!py_take_buffer(data, &held->data, PyBUF_CONTIG, 4, "data") ||
        !py_find_element(&held->data, &part->element) ||
        !py_take_buffer(words, &held->words, PyBUF_STRIDED_RO, 2, "words") ||
        !py_check_words(&held->words, 1, NUM_WORDS))
        return false;
    if (labels != Py_None && (!py_take_buffer(labels, &held->labels, PyBUF_STRIDED, 1, "labels") ||
                              !describe_labels(&held->labels, part)))
        return false;
    const Py_ssize_t *shape = held->data.shape;
    if (shape[0] != num || held->words.shape[0] != num ||
        (labels != Py_None && held->labels.shape[0] != num)) {
        PyErr_SetString(PyExc_ValueError, "values, words, data and labels differ in length");
        return false;
    }
    part->rows = held->data.buf;
    part->row_size = (size_t)(shape[1] * shape[2] * shape[3] * held->data.itemsize);
    part->words = held->words.buf;
    part->word_steps[0] = held->words.strides[0];
    part->word_steps[1] = held->words.strides[1];
    held->outcomes = PyMem_Malloc((size_t)num * sizeof *held->outcomes);
    if (held->outcomes == NULL)
        PyErr_NoMemory();
    return held->outcomes != NULL;
}

static PyObject *fill_held_part(struct held_part *held, PyObject *recipe)
{
    struct held_recipe held_recipe;
    ptrdiff_t num_outcomes = 0;
    if (!py_take_recipe(recipe, held->part.element, &held_recipe))
        return NULL;
    const bool fits =
        py_check_words(&held->words, 1, held_recipe.recipe.num_words) &&
        py_find_row_shape(held->data.shape + 1, &held_recipe.recipe, &held->part.expected);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        num_outcomes = fill_part(&held->part, &held_recipe.recipe, held->outcomes);
        Py_END_ALLOW_THREADS
    }
    py_release_recipe(&held_recipe);
    if (num_outcomes < 0)
        return PyErr_NoMemory();
    return fits ? outcomes_as_list(held->outcomes, num_outcomes) : NULL;
}

/* Fill a part from records that Python holds. */
static PyObject *fill_values(struct held_part *held, const struct held_list *values,
                             PyObject *recipe)
{
    struct record *records = PyMem_Malloc((size_t)values->num * sizeof *records);
    if (records == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < values->num; i++)
        records[i] = (struct record){values->views[i].buf, (size_t)values->views[i].len};
    held->part.records = records;
    held->part.num_records = (size_t)values->num;
    PyObject *outcomes = fill_held_part(held, recipe);
    PyMem_Free(records);
    return outcomes;
}

PY_FUNCTION(py_fill)
{
    enum { VALUES, WORDS, DATA, LABELS, RECIPE, NUM };
    PY_CHECK_ARITY("fill", NUM);
    struct held_list values;
    struct held_part held;
    memset(&held, 0, sizeof held);
    PyObject *outcomes = NULL;
    if (py_take_list(arguments[VALUES], PyBUF_SIMPLE, &values) &&
        take_part(values.num, arguments[WORDS], arguments[DATA], arguments[LABELS], &held))
        outcomes = fill_values(&held, &values, arguments[RECIPE]);
    release_part(&held);
    py_release_list(&values);
    return outcomes;
}

/* A part that is filled from records found through the packed index. */
struct indexed_part {
    struct held_numbers numbers;
    struct held_part held;
    struct held_recipe recipe;
    Py_ssize_t num_found;
    ptrdiff_t num_outcomes; /* -1: out of memory */
};

static void release_indexed(struct indexed_part *part)
{
    py_release_recipe(&part->recipe);
    release_part(&part->held);
    py_release_numbers(&part->numbers);
}

/* Take (records, spans, words, data, labels); also where that fails, release_indexed() has to
 * follow. */
static bool take_indexed(PyObject *tuple, PyObject *recipe, struct indexed_part *part)
{
    PyObject *records, *spans, *words, *data, *labels;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a part must be a tuple of 5");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "OOOOO", &records, &spans, &words, &data, &labels) ||
        !py_take_numbers(records, spans, &part->numbers) ||
        !take_part(part->numbers.num, words, data, labels, &part->held) ||
        !py_take_recipe(recipe, part->held.part.element, &part->recipe) ||
        !py_check_words(&part->held.words, 1, part->recipe.recipe.num_words) ||
        !py_find_row_shape(part->held.data.shape + 1, &part->recipe.recipe,
                           &part->held.part.expected))
        return false;
    part->held.part.records = part->numbers.records;
    part->held.part.num_records = (size_t)part->numbers.num;
    return true;
}

/* Without the GIL. */
static void fill_indexed(const struct held_index *index, struct indexed_part *part)
{
    part->num_found = py_find_records(index, &part->numbers);
    if (part->num_found == part->numbers.num)
        part->num_outcomes =
            fill_part(&part->held.part, &part->recipe.recipe, part->held.outcomes);
}

/* What fill_records() returns for a part: (position of the first record that cannot be found, or
 * -1; list of Outcomes; the keys one directly after the other, as bytes). */
static PyObject *build_result(const struct held_index *index, const struct indexed_part *part)
{
    if (part->num_found < part->numbers.num)
        return Py_BuildValue("(n[]y)", part->num_found, "");
    if (part->num_outcomes < 0)
        return PyErr_NoMemory();
    PyObject *outcomes = outcomes_as_list(part->held.outcomes, part->num_outcomes);
    PyObject *keys = outcomes == NULL ? NULL : py_gather_keys(index, &part->numbers);
    if (keys != NULL)
        return Py_BuildValue("(nNN)", (Py_ssize_t)-1, outcomes, keys);
    Py_XDECREF(outcomes);
    return NULL;
}

/* Fill the parts that were taken; return a list of their results. */
static PyObject *fill_taken(const struct held_index *index, struct indexed_part *parts,
                            Py_ssize_t num)
{
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < num; i++)
        fill_indexed(index, &parts[i]);
    Py_END_ALLOW_THREADS
    PyObject *results = PyList_New(num);
    for (Py_ssize_t i = 0; results != NULL && i < num; i++) {
        PyObject *result = build_result(index, &parts[i]);
        if (result == NULL || PyList_SetItem(results, i, result) < 0)
            Py_CLEAR(results);
    }
    return results;
}

PY_FUNCTION(py_fill_records)
{
    enum { RECIPE = NUM_INDEX_ARGUMENTS, PARTS, NUM };
    PY_CHECK_ARITY("fill_records", NUM);
    /* our own: nobody can change it while the GIL is released */
    PyObject *tuples = PySequence_Tuple(arguments[PARTS]);
    if (tuples == NULL)
        return NULL;
    const Py_ssize_t num = PyTuple_Size(tuples);
    struct indexed_part *parts = PyMem_Calloc((size_t)num, sizeof *parts);
    struct held_index index;
    memset(&index, 0, sizeof index);
    PyObject *results = NULL;
    if (parts == NULL)
        PyErr_NoMemory();
    else if (py_take_index(arguments, &index)) {
        Py_ssize_t num_taken = 0;
        while (num_taken < num && take_indexed(PyTuple_GetItem(tuples, num_taken),
                                               arguments[RECIPE], &parts[num_taken]))
            num_taken++;
        if (num_taken == num)
            results = fill_taken(&index, parts, num);
    }
    for (Py_ssize_t i = 0; parts != NULL && i < num; i++)
        release_indexed(&parts[i]);
    py_release_index(&index);
    PyMem_Free(parts);
    Py_DECREF(tuples);
    return results;
}

PY_FUNCTION(py_raw_shape)
{
    enum { RECORD = NUM_INDEX_ARGUMENTS, IS_UINT8, NUM };
    PY_CHECK_ARITY("raw_shape", NUM);
    struct record record;
    struct held_index index;
    memset(&index, 0, sizeof index);
    PyObject *result = NULL;
    const int64_t number = PyLong_AsLongLong(arguments[RECORD]);
    const int is_uint8 = PyObject_IsTrue(arguments[IS_UINT8]);
    if (!PyErr_Occurred() && py_take_index(arguments, &index)) {
        struct float_scratch scratch = {NULL, 0};
        struct datum datum;
        struct image image;
        struct fault fault;
        bool is_raw;
        Py_BEGIN_ALLOW_THREADS is_raw =
            py_find_record(&index, number, &record) &&
            parse_datum(record.bytes, record.size, &scratch, &datum, &fault) && !datum.encoded &&
            find_pixels(&datum, is_uint8 ? UINT8 : FLOAT32, &image, &fault);
        free(scratch.bytes);
        Py_END_ALLOW_THREADS
            /* (channels, height, width), or None. */
            result =
                is_raw ? Py_BuildValue("(LLL)", (long long)image.shape.channels,
                                       (long long)image.shape.height, (long long)image.shape.width)
                       : Py_NewRef(Py_None);
    }
    py_release_index(&index);
    return result;
}

/* The buffers of a decoded image and its row. */
struct held_image {
    struct image image;
    Py_buffer pixels, words, row;
};

static bool take_image(PyObject *pixels, PyObject *words, PyObject *row, struct held_image *held)
{
    struct image *image = &held->image;
    if (!py_take_buffer(pixels, &held->pixels, PyBUF_C_CONTIGUOUS, 3, "image") ||
        !py_take_buffer(words, &held->words, PyBUF_STRIDED_RO, 1, "words") ||
        !py_check_words(&held->words, 0, NUM_WORDS) ||
        !py_take_buffer(row, &held->row, PyBUF_CONTIG, 3, "row"))
        return false;
    if (!py_has_type(&held->pixels, 'u', 1)) {
        PyErr_SetString(PyExc_TypeError, "image must be uint8");
        return false;
    }
    const Py_ssize_t *shape = held->pixels.shape;
    image->pixels = held->pixels.buf;
    image->shape = (struct shape){shape[2], shape[0], shape[1]};
    image->channel_step = 1;
    image->pixel_step = (size_t)shape[2];
    image->row_step = (size_t)(shape[2] * shape[1]);
    return true;
}

/* Make of an image that is a part of another one the whole: its pixels outside of the part are
 * nowhere, and are not needed. */
static bool place_in_whole(PyObject *part, const uint32_t *words, const struct recipe *recipe,
                           struct image *image)
{
    long long top, left, height, width;
    if (part == Py_None)
        return true;
    if (!PyTuple_Check(part)) {
        PyErr_SetString(PyExc_TypeError, "part must be a tuple of 4, or None");
        return false;
    }
    if (!PyArg_ParseTuple(part, "LLLL", &top, &left, &height, &width))
        return false;
    const struct shape decoded = image->shape, whole = {decoded.channels, height, width};
    bool holds = top >= 0 && left >= 0 && height <= INT32_MAX && width <= INT32_MAX &&
                 top <= height - decoded.height && left <= width - decoded.width;
    /* An image that does not fit needs nothing, and has no box. */
    const struct shape cropped = find_whole_shape(&whole, recipe);
    if (holds && cropped.height >= recipe->crop_height && cropped.width >= recipe->crop_width) {
        const struct box box = choose_needed_box(&whole, words, recipe);
        holds = (int64_t)box.top >= top && (int64_t)box.left >= left &&
                (int64_t)(box.top + box.height) <= top + decoded.height &&
                (int64_t)(box.left + box.width) <= left + decoded.width;
    }
    if (!holds) {
        PyErr_SetString(PyExc_ValueError, "part lacks pixels that the row is made of");
        return false;
    }
    const uintptr_t before = (uintptr_t)top * image->row_step + (uintptr_t)left * image->pixel_step;
    image->pixels = (const uint8_t *)((uintptr_t)image->pixels - before);
    image->shape = whole;
    return true;
}

static PyObject *fill_held_image(struct held_image *held, PyObject *recipe, PyObject *part)
{
    struct held_recipe held_recipe;
    struct shape expected;
    struct fault fault;
    enum element element;
    uint32_t words[MOST_WORDS];
    if (!py_find_element(&held->row, &element) || !py_take_recipe(recipe, element, &held_recipe))
        return NULL;
    const struct recipe *taken = &held_recipe.recipe;
    PyObject *outcome = NULL;
    if (py_check_words(&held->words, 0, taken->num_words) &&
        py_find_row_shape(held->row.shape, taken, &expected)) {
        for (size_t i = 0; i < taken->num_words; i++)
            memcpy(&words[i],
                   (uint8_t *)held->words.buf + (Py_ssize_t)i * held->words.strides[0], 4);
        if (!place_in_whole(part, words, taken, &held->image)) {
            py_release_recipe(&held_recipe);
            return NULL;
        }
        bool fits, has_memory = true;
        Py_BEGIN_ALLOW_THREADS
        fits = check_fit(&held->image.shape, taken, &expected, false, &fault);
        if (fits && taken->makes_pixels)
            has_memory = make_pixels(&held->image, words, taken);
        if (fits && has_memory &&
            transform_image(&held->image, words, taken, element, held->row.buf))
            finish_streaming();
        Py_END_ALLOW_THREADS
        if (!has_memory) {
            py_release_recipe(&held_recipe);
            return PyErr_NoMemory();
        }
            /* None, or (reason, numbers). */
            outcome = fits ? Py_NewRef(Py_None)
                           : Py_BuildValue("(iN)", (int)fault.reason, numbers_as_tuple(&fault));
    }
    py_release_recipe(&held_recipe);
    return outcome;
}

PY_FUNCTION(py_fill_image)
{
    enum { IMAGE, WORDS, ROW, RECIPE, PART, NUM };
    PY_CHECK_ARITY("fill_image", NUM);
    struct held_image held;
    memset(&held, 0, sizeof held);
    PyObject *outcome = NULL;
    if (take_image(arguments[IMAGE], arguments[WORDS], arguments[ROW], &held))
        outcome = fill_held_image(&held, arguments[RECIPE], arguments[PART]);
    py_release_buffer(&held.pixels);
    py_release_buffer(&held.words);
    py_release_buffer(&held.row);
    return outcome;
}

/* The function for Python that makes digests; see prefetch/_kernels/_c.pyi. */
#include "py_digest.h"

#include "digest.h"

PY_FUNCTION(py_digest)
{
    enum { CONTENT, NUM };
    PY_CHECK_ARITY("digest", NUM);
    Py_buffer content = {0};
    if (PyObject_GetBuffer(arguments[CONTENT], &content, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t words[2];
    Py_BEGIN_ALLOW_THREADS
    digest_bytes(content.buf, (size_t)content.len, words);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&content);
    uint8_t bytes[16];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(words[i / 8] >> (8 * (i % 8)));
    return PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
}

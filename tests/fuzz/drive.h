/* Runs LLVMFuzzerTestOneInput, which the including file defines, without libFuzzer: on each file of
 * a corpus, and then on mutations of them for a time. An input that fails is written to ./crash. */
#ifndef WITH_LIBFUZZER

#define MAX_SIZE 8192
#define MAX_SEEDS 256

struct input {
    uint8_t bytes[MAX_SIZE];
    size_t size;
};

static struct input seeds[MAX_SEEDS];
static struct input current;
static size_t num_seeds;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below == 0 ? 0 : state % below;
}

/* What lies near the limits of a wire format. */
static const uint8_t tokens[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0x08, 0x10, 0x18, 0x22, 0x28,
                                 0x32, 0x35, 0x38, 0x03, 0x04, 0x0B, 0x0C, 0x05, 0x02, 0x40};

static void mutate(struct input *input)
{
    const size_t at = (size_t)draw(input->size + 1);
    const struct input *other = &seeds[draw(num_seeds)];
    switch (draw(6)) {
    case 0:
        if (at < input->size)
            input->bytes[at] = tokens[draw(sizeof tokens)];
        break;
    case 1:
        if (at < input->size)
            input->bytes[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 2:
        input->size = at;
        break;
    case 3: /* put a byte in */
        if (input->size < MAX_SIZE) {
            memmove(input->bytes + at + 1, input->bytes + at, input->size - at);
            input->bytes[at] = tokens[draw(sizeof tokens)];
            input->size++;
        }
        break;
    case 4: /* take one out */
        if (at < input->size) {
            memmove(input->bytes + at, input->bytes + at + 1, input->size - at - 1);
            input->size--;
        }
        break;
    default: { /* go on with the end of another */
        const size_t from = (size_t)draw(other->size + 1);
        const size_t num = other->size - from;
        if (at + num <= MAX_SIZE) {
            memcpy(input->bytes + at, other->bytes + from, num);
            input->size = at + num;
        }
    }
    }
}

void __sanitizer_set_death_callback(void (*callback)(void));

static void keep(void)
{
    FILE *file = fopen("crash", "wb");
    if (file != NULL) {
        fwrite(current.bytes, 1, current.size, file);
        fclose(file);
    }
}

int main(int num_arguments, char **arguments)
{
    if (num_arguments < 4 || num_arguments - 3 > MAX_SEEDS) {
        fprintf(stderr, "usage: %s SECONDS SEED FILE...\n", arguments[0]);
        return 2;
    }
    const double seconds = atof(arguments[1]);
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    __sanitizer_set_death_callback(keep);
    for (int i = 3; i < num_arguments; i++) {
        FILE *file = fopen(arguments[i], "rb");
        if (file == NULL) {
            perror(arguments[i]);
            return 2;
        }
        current.size = fread(current.bytes, 1, MAX_SIZE, file);
        fclose(file);
        seeds[num_seeds++] = current;
        LLVMFuzzerTestOneInput(current.bytes, current.size);
    }
    const clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    unsigned long num_runs = num_seeds;
    for (; clock() < end; num_runs++) {
        current = seeds[draw(num_seeds)];
        for (uint64_t i = 1 + draw(4); i > 0; i--)
            mutate(&current);
        LLVMFuzzerTestOneInput(current.bytes, current.size);
    }
    printf("%lu inputs\n", num_runs);
    return 0;
}

#endif

package compress_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func zstd(t testing.TB) *compress.Zstd {
	t.Helper()
	z, err := compress.NewZstd()
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func all(t testing.TB) []serializer.Compressor {
	return []serializer.Compressor{zstd(t), compress.S2{}, &compress.Gzip{}}
}

func each(t *testing.T, f func(t *testing.T, c serializer.Compressor)) {
	for _, c := range all(t) {
		t.Run(c.Name(), func(t *testing.T) { f(t, c) })
	}
}

func compressed(t testing.TB, c serializer.Compressor, plain []byte) []byte {
	t.Helper()
	data, err := c.Compress(plain)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNamesAreUsable(t *testing.T) {
	c := serializer.Compression{Compressors: all(t), Use: compress.NameS2}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

func TestRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, c serializer.Compressor) {
		rapid.Check(t, func(t *rapid.T) {
			plain := bytes.Repeat(rapid.SliceOf(rapid.Byte()).Draw(t, "plain"), rapid.IntRange(0, 50).Draw(t, "times"))
			data, err := c.Compress(plain)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Decompress(data, len(plain))
			if err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("%d bytes became %d: %v", len(plain), len(got), err)
			}
			if len(plain) > 0 {
				if got, err := c.Decompress(data, len(plain)-1); !errors.Is(err, serializer.ErrTooLarge) || got != nil {
					t.Fatalf("a byte more than allowed: %d bytes, %v", len(got), err)
				}
			}
		})
	})
}

func TestTextBecomesSmaller(t *testing.T) {
	plain := []byte(strings.Repeat("the same words again, and some others: 1, 2, 3. ", 40))
	each(t, func(t *testing.T, c serializer.Compressor) {
		if data := compressed(t, c, plain); len(data)*4 > len(plain) {
			t.Errorf("%d bytes became %d", len(plain), len(data))
		}
	})
}

func TestDamaged(t *testing.T) {
	plain := []byte(strings.Repeat("0123456789abcdef, the contents of a task. ", 30))
	each(t, func(t *testing.T, c serializer.Compressor) {
		data := compressed(t, c, plain)
		classed := func(what string, at int, err error) {
			if err != nil && !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrTooLarge) {
				t.Fatalf("%s at %d: %v is of no class", what, at, err)
			}
		}
		for n := range data {
			got, err := c.Decompress(data[:n], 1<<16)
			if classed("cut", n, err); err == nil && bytes.Equal(got, plain) {
				t.Fatalf("cut at %d: nothing is missing", n)
			}
		}
		damaged := bytes.Clone(data)
		for at := range damaged {
			for _, flip := range []byte{1, 0x80, 0xff} {
				damaged[at] ^= flip
				_, err := c.Decompress(damaged, 1<<16)
				classed("flipped", at, err)
				damaged[at] ^= flip
			}
		}
	})
}

// TestBombs shows that decompression stops at the limit, whatever size the data claims. It needs at
// most a few times the limit of memory.
func TestBombs(t *testing.T) {
	const limit = 256 << 10
	zeros := make([]byte, 4<<20)
	each(t, func(t *testing.T, c serializer.Compressor) {
		bombs := map[string][]byte{"zeros": compressed(t, c, zeros)}
		switch c.Name() {
		case compress.NameGzip, compress.NameZstd: // the second part belongs to the contents
			bombs["in pieces"] = bytes.Repeat(compressed(t, c, zeros[:1<<18]), 16)
		}
		if c.Name() == compress.NameZstd {
			// RLE blocks of 64 KiB, window 1 MiB
			bombs["no size given"] = append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x50}, bytes.Repeat([]byte{0x02, 0, 0x08, 0}, 1<<12)...)
			bombs["window of 8 GiB"] = []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 23 << 3, 0x02, 0, 0x08, 0}
		}
		if c.Name() == compress.NameS2 {
			bombs["4 GiB promised"] = []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}
			bombs["200 KiB promised and not kept"] = []byte{0x80, 0xc0, 0x0c, 0}
		}
		_, _ = c.Decompress(compressed(t, c, zeros[:64]), 64) // allocates its tables once
		for name, bomb := range bombs {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.Decompress(bomb, limit)
			runtime.ReadMemStats(&after)
			if err == nil || got != nil || !errors.Is(err, serializer.ErrTooLarge) && !errors.Is(err, serializer.ErrMalformed) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 24<<20 {
				t.Errorf("%s: took %d KiB", name, spent>>10)
			}
		}
	})
}

// TestFarReference shows that a frame with a window of 16 MiB is refused, and one with 8 MiB
// accepted.
func TestFarReference(t *testing.T) {
	for exponent, want := range map[byte]error{13: nil, 14: serializer.ErrMalformed} {
		got, err := zstd(t).Decompress([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3, 0x0b, 0, 0, 'x'}, 100)
		if !errors.Is(err, want) || want == nil && string(got) != "x" {
			t.Errorf("window of 2^%d KiB: %q, %v; want %v", exponent, got, err, want)
		}
	}
}

func TestConcurrent(t *testing.T) {
	each(t, func(t *testing.T, c serializer.Compressor) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				plain := bytes.Repeat([]byte{byte(i), 'x', byte(i * 7)}, 1000)
				for range 10 {
					data, err := c.Compress(plain)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := c.Decompress(data, len(plain)); err != nil || !bytes.Equal(got, plain) {
						t.Errorf("%d bytes, %v", len(got), err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func FuzzDecompress(f *testing.F) {
	cs := all(f)
	for i, c := range cs {
		for _, plain := range []string{"", "a", strings.Repeat("abc", 200)} {
			f.Add(byte(i), compressed(f, c, []byte(plain)))
		}
	}
	f.Add(byte(0), []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 23 << 3, 0x02, 0, 0x08, 0})
	f.Add(byte(1), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0})
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		c := cs[int(which)%len(cs)]
		plain, err := c.Decompress(data, limit)
		switch {
		case err == nil && len(plain) > limit:
			t.Fatalf("%s: %d bytes", c.Name(), len(plain))
		case err != nil && (plain != nil || !errors.Is(err, serializer.ErrMalformed) && !errors.Is(err, serializer.ErrTooLarge)):
			t.Fatalf("%s: %d bytes, %v", c.Name(), len(plain), err)
		}
	})
}

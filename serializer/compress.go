package serializer

import (
	"errors"
	"fmt"
	"slices"
)

// Defaults of [Compression].
const (
	DefaultCompressAbove = 512
	DefaultMaxPlain      = 10 << 20
	DefaultMaxRatio      = 100
)

// CodingSealed is the suffix, after a '+', of the content type of sealed data. A Compressor must
// not have this name.
const CodingSealed = "sealed"

// Compressor compresses and decompresses bytes. The package serializer/compress has
// implementations. Implementations must be safe for concurrent use.
type Compressor interface {
	// Name returns the suffix, after a '+', of the content type of compressed data, which is also the
	// message's content encoding: 1 to 16 of a-z and 0-9.
	Name() string
	// Compress returns plain in compressed form, in a new slice.
	Compress(plain []byte) ([]byte, error)
	// Decompress returns the decompressed data, at most max bytes. It uses at most a small multiple of
	// max bytes of memory, regardless of the size that data claims.
	//
	// Returns [ErrTooLarge] if the result is longer than max, and [ErrMalformed] if data is not valid.
	Decompress(data []byte, max int) ([]byte, error)
}

// Compression configures the compression of arguments and results. The zero value compresses
// nothing. Data compressed with zstd, s2 or gzip of package serializer/compress is always read,
// within the limits here.
type Compression struct {
	// Compressors are used for reading, in addition to zstd, s2 and gzip. Use and a task's metadata
	// can name only these.
	Compressors []Compressor
	// Use is the name of the compressor for writing. Default: none, except for tasks whose metadata
	// name one.
	Use string
	// Above is the size in bytes from which data is compressed. Data that does not become smaller
	// stays uncompressed. Default: 512.
	Above int
	// MaxPlain is the maximum size in bytes of decompressed data. Default: 10 MiB.
	MaxPlain int
	// MaxRatio is the maximum ratio of decompressed to compressed size. Data beyond it is sent
	// uncompressed. Default: 100.
	MaxRatio int
	// Sealed also compresses data that is then sealed. The compressed length reveals something about
	// the contents to an attacker that sees message sizes and controls a part of the contents.
	// Default: false.
	Sealed bool
}

// Check returns an error that joins all problems of c, or nil.
func (c *Compression) Check() error {
	var errs []error
	var names []string
	for i, one := range c.Compressors {
		switch {
		case one == nil:
			errs = append(errs, fmt.Errorf("compressor number %d is nil", i+1))
			continue
		case !validCoding(one.Name()):
			errs = append(errs, fmt.Errorf("compressor number %d (%T) has the invalid name %q", i+1, one, one.Name()))
		case slices.Contains(names, one.Name()):
			errs = append(errs, fmt.Errorf("compressor %q is given twice", one.Name()))
		}
		names = append(names, one.Name())
	}
	if c.Use != "" && !slices.Contains(names, c.Use) {
		errs = append(errs, fmt.Errorf("the compressor %q of Use is not in Compressors", c.Use))
	}
	if c.Above < 0 || c.MaxPlain < 0 || c.MaxRatio < 0 {
		errs = append(errs, fmt.Errorf("negative limit: above %d, at most %d, ratio %d", c.Above, c.MaxPlain, c.MaxRatio))
	}
	return errors.Join(errs...)
}

// validCoding reports whether a compressor may have this name: 1 to 16 of a-z and 0-9, but no name
// that means something else after the '+' of a content type, such as "json".
func validCoding(name string) bool {
	switch name {
	case "", CodingSealed, "identity", "json", "xml", "cbor", "zip":
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) <= 16
}

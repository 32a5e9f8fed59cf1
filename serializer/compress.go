package serializer

import (
	"errors"
	"fmt"
	"slices"
)

// Defaults of a [Compression].
const (
	DefaultCompressAbove = 512
	DefaultMaxPlain      = 10 << 20
	DefaultMaxRatio      = 100
)

// CodingSealed is what a content type ends with, after a '+', when its data are sealed. It is no name of a Compressor.
const CodingSealed = "sealed"

// Compressor is a way to write bytes shorter. The package serializer/compress has some. It may be used from any goroutine.
type Compressor interface {
	// Name is what a content type ends with, after a '+', when its data are compressed in this way, and what a message's
	// content encoding says: 1 to 16 of a-z and 0-9.
	Name() string
	// Compress returns plain, compressed, in a new slice.
	Compress(plain []byte) ([]byte, error)
	// Decompress returns what was compressed, at most max bytes: more is [ErrTooLarge], whatever data say of themselves, and
	// the memory it takes stays within a small multiple of max. What cannot be read is [ErrMalformed].
	Decompress(data []byte, max int) ([]byte, error)
}

// Compression says what is compressed, arguments and results alike. The zero value compresses nothing. What package
// serializer/compress writes (zstd, s2 and gzip) is always read, within the limits here.
type Compression struct {
	// Compressors are understood when reading, besides zstd, s2 and gzip; Use and a task's metadata choose among these alone.
	Compressors []Compressor
	// Use names the one that writes. "": none does, but for tasks whose metadata name one.
	Use string
	// Above is the size, in bytes, from which data are compressed. 0: 512. What does not become smaller stays plain.
	Above int
	// MaxPlain is the largest size, in bytes, that compressed data may come to. 0: 10 MiB.
	MaxPlain int
	// MaxRatio is how many times larger they may become. 0: 100. What would be beyond it is sent plain.
	MaxRatio int
	// Sealed compresses also what is sealed with it. The length of what is compressed tells something about its contents, to
	// whom can see how long messages are and has a part in what they hold; so this has to be asked for.
	Sealed bool
}

// Check returns every problem of c, joined, or nil.
func (c *Compression) Check() error {
	var errs []error
	var names []string
	for i, one := range c.Compressors {
		switch {
		case one == nil:
			errs = append(errs, fmt.Errorf("compressor number %d is nil", i+1))
			continue
		case !validCoding(one.Name()):
			errs = append(errs, fmt.Errorf("compressor number %d (%T) has no usable name: %q", i+1, one, one.Name()))
		case slices.Contains(names, one.Name()):
			errs = append(errs, fmt.Errorf("compressor %q is there twice", one.Name()))
		}
		names = append(names, one.Name())
	}
	if c.Use != "" && !slices.Contains(names, c.Use) {
		errs = append(errs, fmt.Errorf("compressor %q is to be used and not among those given", c.Use))
	}
	if c.Above < 0 || c.MaxPlain < 0 || c.MaxRatio < 0 {
		errs = append(errs, fmt.Errorf("negative limit: above %d, at most %d, ratio %d", c.Above, c.MaxPlain, c.MaxRatio))
	}
	return errors.Join(errs...)
}

// validCoding reports whether a compressor may have this name. Those that other media types end with are refused.
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

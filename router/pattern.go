package router

import (
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// pattern is a compiled pattern of names: a list of literal texts and wildcards.
type pattern []piece

// piece is a literal text or a wildcard.
type piece struct {
	kind kind
	text string // of a literal
}

// kind is the kind of a piece.
type kind uint8

const (
	literal kind = iota
	within       // '*': any characters except '.'
	across       // '#' or '**': any characters
)

// maxPattern limits the length of a pattern in bytes. Names have at most 128.
const maxPattern = 256

// compile parses a pattern. Returns an error if it is empty, too long, or has characters that names
// cannot have.
func compile(s string) (pattern, error) {
	switch {
	case s == "":
		return nil, errors.New("empty pattern")
	case len(s) > maxPattern:
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(s), maxPattern)
	}
	var p pattern
	for rest := s; rest != ""; {
		var next piece
		switch i := strings.IndexAny(rest, "*#"); {
		case i > 0:
			next = piece{literal, rest[:i]}
			rest = rest[i:]
		case i < 0:
			next = piece{literal, rest}
			rest = ""
		case strings.HasPrefix(rest, "**"):
			next = piece{kind: across}
			rest = rest[2:]
		case rest[0] == '#':
			next = piece{kind: across}
			rest = rest[1:]
		default:
			next = piece{kind: within}
			rest = rest[1:]
		}
		if next.kind == literal && !nameBytes(next.text) {
			return nil, fmt.Errorf("pattern %q has characters that names cannot have", s)
		}
		p = append(p, next)
	}
	return p, nil
}

// match reports whether the whole of s matches p.
func (p pattern) match(s string) bool {
	// at holds the positions in s at which the pieces so far can end. Each piece takes linear time.
	// Longer texts are not names.
	if len(s) > naming.MaxName || p[0].kind == literal && !strings.HasPrefix(s, p[0].text) {
		return false
	}
	var at positions
	at.set(0)
	for _, pc := range p {
		var next positions
		switch pc.kind {
		case literal:
			for i := 0; i+len(pc.text) <= len(s); i++ {
				if at.has(i) && s[i:i+len(pc.text)] == pc.text {
					next.set(i + len(pc.text))
				}
			}
		default:
			open := false
			for i := 0; i <= len(s); i++ {
				open = open || at.has(i)
				if open {
					next.set(i)
				}
				if pc.kind == within && i < len(s) && s[i] == '.' {
					open = false
				}
			}
		}
		at = next
	}
	return at.has(len(s))
}

// positions is a set of numbers from 0 to naming.MaxName.
type positions [naming.MaxName/64 + 1]uint64

// set adds i to the set.
func (b *positions) set(i int) { b[i>>6] |= 1 << (i & 63) }

// has reports whether i is in the set.
func (b *positions) has(i int) bool { return b[i>>6]&(1<<(i&63)) != 0 }

// nameBytes reports whether s can be a part of a name, at its beginning or after a letter.
func nameBytes(s string) bool { return naming.ValidName(s) || naming.ValidName("a"+s) }

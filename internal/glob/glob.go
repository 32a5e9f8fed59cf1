// Package glob matches names as SQLite's GLOB operator does, without SQLite.
//
// In a pattern, "*" matches any sequence of characters, including an empty one and "/". "?" matches
// one character. "[abc]" matches one of the listed characters, with ranges as in "[a-z]". "[^abc]"
// matches any other character. A "]" directly after the opening stands for itself, and so does "-"
// in the first or last place. Patterns do not support an escape character: write "[*]" for a star.
// A set without a closing bracket matches no name. Matching is case-sensitive.
//
// Some of SQLite's results are surprising, and this package has the same ones:
//
//   - "[!a]" is the set of "!" and "a".
//   - The beginning of a range also stands for itself, so "[z-a]" matches "z".
//   - A pattern and a name end at their first NUL.
//   - SQLite decodes bytes that are not UTF-8 in its own way, see read.
package glob

import (
	"strings"
	"unicode/utf8"
)

// Pattern is a compiled pattern. The zero value is the pattern "". It is immutable and safe for
// concurrent use.
type Pattern struct {
	steps  []step
	spans  []span // of all sets
	prefix string
	exact  bool
	never  bool // a set is not closed
}

// step is the condition of one part of the pattern.
type step struct {
	kind     kind
	r        uint32 // for a literal
	from, to int    // the spans of a set
}

// kind is the kind of a step.
type kind uint8

const (
	literal kind = iota // this character
	one                 // any character
	in                  // a character of the set
	out                 // a character outside the set
	run                 // any characters, also an empty sequence
)

// span is a range of characters, including both ends. If its end is before its beginning, it is
// empty.
type span struct{ lo, hi uint32 }

// Compile compiles a pattern. Every text is a valid pattern. Time and memory are proportional to
// the length of the pattern.
func Compile(pattern string) Pattern {
	if i := strings.IndexByte(pattern, 0); i >= 0 {
		pattern = pattern[:i]
	}
	var p Pattern
	for i := 0; i < len(pattern); {
		c, n := read(pattern[i:])
		i += n
		switch c {
		case '*':
			p.star()
		case '?':
			p.question()
		case '[':
			n, closed := p.set(pattern[i:])
			if !closed {
				return Pattern{never: true}
			}
			i += n
		default:
			p.steps = append(p.steps, step{kind: literal, r: c})
		}
	}
	p.prefix, p.exact = p.literals()
	return p
}

// star appends a step that matches any run of characters, for a '*'. After another such step it
// does nothing, because consecutive runs are equivalent to one.
func (p *Pattern) star() {
	if n := len(p.steps); n == 0 || p.steps[n-1].kind != run {
		p.steps = append(p.steps, step{kind: run})
	}
}

// question appends a step that matches one character, for a '?'. After a run it inserts the step
// before the run, which is equivalent. So consecutive runs become one.
func (p *Pattern) question() {
	n := len(p.steps)
	if n == 0 || p.steps[n-1].kind != run {
		p.steps = append(p.steps, step{kind: one})
		return
	}
	p.steps[n-1] = step{kind: one}
	p.star()
}

// set appends the step of the set that begins text, after its opening bracket. It returns the
// number of bytes of the set, and whether the set is closed.
func (p *Pattern) set(text string) (n int, closed bool) {
	from, kind := len(p.spans), in
	next := func() uint32 { // 0 at the end
		c, size := read(text[n:])
		n += size
		return c
	}
	peek := func() uint32 {
		c, _ := read(text[n:])
		return c
	}
	c := next()
	if c == '^' {
		kind, c = out, next()
	}
	if c == ']' {
		p.spans = append(p.spans, span{']', ']'})
		c = next()
	}
	before := uint32(0) // a possible beginning of a range
	for c != 0 && c != ']' {
		if after := peek(); c == '-' && before != 0 && after != ']' && after != 0 {
			p.spans = append(p.spans, span{before, next()})
			before = 0 // the end of a range cannot begin another range
		} else {
			p.spans = append(p.spans, span{c, c})
			before = c
		}
		c = next()
	}
	if set := p.spans[from:]; kind == in && len(set) == 1 && set[0].lo == set[0].hi {
		p.steps = append(p.steps, step{kind: literal, r: set[0].lo})
		p.spans = p.spans[:from]
	} else {
		p.steps = append(p.steps, step{kind: kind, from: from, to: len(p.spans)})
	}
	return n, c == ']'
}

// literals returns the text with which the pattern begins, and whether the text is the whole
// pattern. The text ends at a character that SQLite also reads from other bytes, since a name may
// then begin with those bytes.
func (p *Pattern) literals() (text string, all bool) {
	var b strings.Builder
	for _, s := range p.steps {
		if s.kind != literal || s.r >= 0xFFFD && s.r <= 0xFFFF || !utf8.ValidRune(rune(s.r)) {
			return b.String(), false
		}
		b.WriteRune(rune(s.r))
	}
	return b.String(), true
}

// Exact returns the only UTF-8 name that the pattern matches, if the pattern has neither wildcards
// nor sets of several characters. A caller with an index of names then needs no pattern match.
// "a[*]" is exact, and its name is "a*".
func (p Pattern) Exact() (name string, ok bool) {
	if p.never || len(p.steps) > 0 && !p.exact {
		return "", false
	}
	return p.prefix, true
}

// Prefix returns the text with which every matching UTF-8 name begins. It may be empty.
func (p Pattern) Prefix() string { return p.prefix }

// Never reports that no name matches, because a set is not closed.
func (p Pattern) Never() bool { return p.never }

// Match reports whether the pattern matches the whole name. It does not allocate. The number of
// steps is at most the length of the pattern times that of the name.
func (p Pattern) Match(name string) bool {
	if p.never {
		return false
	}
	// A run first takes as few characters as possible. If a later step fails, only the last run is
	// tried again with one more character. Earlier runs need no second try, because the last run can
	// take any characters that they could have left.
	at, pos := 0, 0       // step and position in the name
	again, start := -1, 0 // the step after the last run, and the position at which it was tried
	for pos < len(name) {
		c, n := read(name[pos:])
		if c == 0 {
			break
		}
		if at < len(p.steps) && p.steps[at].kind == run {
			at++
			again, start = at, pos
			continue
		}
		if at < len(p.steps) && p.takes(p.steps[at], c) {
			at, pos = at+1, pos+n
			continue
		}
		if again < 0 {
			return false
		}
		_, n = read(name[start:])
		start += n
		at, pos = again, start
	}
	return at == len(p.steps) || at == len(p.steps)-1 && p.steps[at].kind == run
}

// takes reports whether a character satisfies a step that is not a run.
func (p Pattern) takes(s step, c uint32) bool {
	switch s.kind {
	case literal:
		return s.r == c
	case one:
		return true
	}
	for _, k := range p.spans[s.from:s.to] {
		if k.lo <= c && c <= k.hi {
			return s.kind == in
		}
	}
	return s.kind == out
}

// read returns the first character of text and its length in bytes, or 0 and 0 at the end.
//
// It decodes as SQLite does. That differs from Go if the text is not UTF-8:
//
//   - A byte that cannot begin a character stands for the character of its own number.
//   - All continuation bytes after a first byte belong to it, whatever their number.
//   - A result below 0x80, a surrogate, or one of the last two characters of the first plane
//     becomes U+FFFD.
//   - Encodings that are longer than necessary are accepted.
func read(text string) (c uint32, n int) {
	if text == "" {
		return 0, 0
	}
	c = uint32(text[0])
	if c < 0xC0 {
		return c, 1
	}
	switch {
	case c < 0xE0:
		c &= 0x1F
	case c < 0xF0:
		c &= 0x0F
	case c < 0xF8:
		c &= 0x07
	case c < 0xFC:
		c &= 0x03
	case c < 0xFE:
		c &= 0x01
	default:
		c = 0
	}
	for n = 1; n < len(text) && text[n]&0xC0 == 0x80; n++ {
		c = c<<6 + uint32(text[n]&0x3F)
	}
	if c < 0x80 || c&0xFFFFF800 == 0xD800 || c&0xFFFFFFFE == 0xFFFE {
		c = 0xFFFD
	}
	return c, n
}

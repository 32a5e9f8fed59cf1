// Package glob matches names as SQLite's GLOB operator does, without SQLite.
//
// In a pattern, "*" stands for any run of characters, the empty one and "/" included; "?" for one character; "[abc]" for one of
// those named, with ranges as in "[a-z]", and "[^abc]" for one of all others. "]" right after the opening stands for itself, and so does
// "-" in the first or the last place. Nothing escapes: "[*]" is how a star is named. A set that is not closed matches nothing. Case counts.
//
// A few answers of SQLite surprise, and are given here as well: "[!a]" is the set of "!" and "a"; the beginning of a range also stands
// for itself, so that "[z-a]" matches "z"; a pattern and a name end at their first NUL; and of bytes that are no UTF-8 SQLite makes
// characters in its own way, see read.
package glob

import (
	"strings"
	"unicode/utf8"
)

// Pattern is a compiled pattern. The zero value is that of "". It never changes, so that any goroutine may use it.
type Pattern struct {
	steps  []step
	spans  []span // of all sets
	prefix string
	exact  bool
	never  bool // a set is not closed
}

// step is what one piece of the pattern asks of the name.
type step struct {
	kind     kind
	r        uint32 // of a literal
	from, to int    // a set's spans
}

type kind uint8

const (
	literal kind = iota // this character
	one                 // any character
	in                  // a character of the set
	out                 // a character that is not of the set
	run                 // any characters, or none
)

// span is a range of characters, both ends included. One whose end comes before its beginning is empty.
type span struct{ lo, hi uint32 }

// Compile reads a pattern. All texts are patterns: there is no error. It takes time and memory as the pattern's length does.
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

// star adds a run, once: a run after a run says nothing more.
func (p *Pattern) star() {
	if n := len(p.steps); n == 0 || p.steps[n-1].kind != run {
		p.steps = append(p.steps, step{kind: run})
	}
}

// question adds one character. Behind a run it goes before it, which means the same, so that runs meet and become one.
func (p *Pattern) question() {
	n := len(p.steps)
	if n == 0 || p.steps[n-1].kind != run {
		p.steps = append(p.steps, step{kind: one})
		return
	}
	p.steps[n-1] = step{kind: one}
	p.star()
}

// set reads a set whose opening has been read, and tells its length and whether it is closed.
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
	before := uint32(0) // where a range may begin
	for c != 0 && c != ']' {
		if after := peek(); c == '-' && before != 0 && after != ']' && after != 0 {
			p.spans = append(p.spans, span{before, next()})
			before = 0 // the end of a range begins no other
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

// literals returns the text that the pattern begins with, and whether that is all of it. Characters that SQLite also reads out of
// other bytes end it, since a name may then begin with those.
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

// Exact returns the only name in UTF-8 that the pattern matches, if it has neither wildcards nor sets of several characters:
// whoever has an index of names then needs no pattern. "a[*]" is exact, and its name "a*".
func (p Pattern) Exact() (name string, ok bool) {
	if p.never || len(p.steps) > 0 && !p.exact {
		return "", false
	}
	return p.prefix, true
}

// Prefix returns what every name in UTF-8 begins with that the pattern matches. It may be empty.
func (p Pattern) Prefix() string { return p.prefix }

// Never reports that no name matches, because a set is not closed.
func (p Pattern) Never() bool { return p.never }

// Match reports whether the pattern matches the whole name. It allocates nothing, and takes at most as many steps as the length of
// the pattern times that of the name.
func (p Pattern) Match(name string) bool {
	if p.never {
		return false
	}
	// A run takes as little as it can. What fails behind the last run is tried again one character later; runs before it need no
	// second try, because whatever they could have left to it, it can take itself.
	at, pos := 0, 0       // step and place in the name
	again, start := -1, 0 // the step behind the last run, and where in the name it was tried
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

// takes reports whether one character is what a step that is no run asks for.
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

// read returns the first character of text and its length in bytes, 0 and 0 at its end.
//
// It reads as SQLite does, and other than Go where the text is no UTF-8: a byte that cannot begin a character stands for the
// character of its own number; all continuation bytes that follow a first byte belong to it, however many; and what comes to a character
// below 0x80, a surrogate or one of the last two of the first plane is U+FFFD. What is longer than it needs to be is taken as it is.
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

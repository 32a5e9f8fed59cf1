package when

import (
	"strings"
	"time"
)

// kind is the kind of a token.
type kind int

const (
	nothing kind = iota // after the last token
	word                // letters, in lower case
	digits
	sign // any other character
)

// token is one word, number or sign of a phrase.
type token struct {
	kind  kind
	text  string
	glued bool // not separated by white space from the token before
	end   int  // offset of its end
}

// tokenize splits a text into words in lower case, numbers and other single bytes. It appends two
// tokens of kind nothing, so that reading ahead stays within the list.
func tokenize(text string) []token {
	var tokens []token
	of := func(c byte) kind {
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			return nothing
		case c >= '0' && c <= '9':
			return digits
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			return word
		default:
			return sign
		}
	}
	glued := false
	for i := 0; i < len(text); {
		k := of(text[i])
		end := i + 1
		for k != sign && end < len(text) && of(text[end]) == k {
			end++
		}
		if k != nothing {
			tokens = append(tokens, token{k, strings.ToLower(text[i:end]), glued, end})
		}
		glued = k != nothing
		i = end
	}
	return append(tokens, token{}, token{})
}

// phrase is the state of parsing one text. Its parsing methods read tokens from next on, and skip
// those that they understand.
type phrase struct {
	input  string
	now    time.Time
	loc    *time.Location // nil: UTC
	tokens []token
	next   int
}

// peek returns the next token and does not skip it. At the end it is a token of kind nothing.
func (p *phrase) peek() token { return p.tokens[p.next] }

// done reports whether all tokens are parsed.
func (p *phrase) done() bool { return p.peek().kind == nothing }

// take skips the next token if it is the given word or sign, and reports whether it did. It never
// skips a number.
func (p *phrase) take(text string) bool {
	if t := p.peek(); t.kind == digits || t.text != text || t.kind == nothing {
		return false
	}
	p.next++
	return true
}

// rest returns the text that is not parsed yet.
func (p *phrase) rest() string { return shorten(strings.TrimSpace(p.input[p.understood():])) }

// understood returns the offset in the text up to which it is parsed.
func (p *phrase) understood() int {
	if p.next == 0 {
		return 0
	}
	return p.tokens[p.next-1].end
}

// refuse returns an error about the next token: problem describes it, and nearest, which may be "",
// is an accepted phrase. The tokens before it count as understood.
func (p *phrase) refuse(problem, nearest string) *SpecError {
	return &SpecError{
		Input: shorten(p.input), Understood: shorten(strings.TrimSpace(p.input[:p.understood()])), Problem: problem, Nearest: nearest,
	}
}

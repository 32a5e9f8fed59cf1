package control

import (
	"strings"
	"unicode/utf8"
)

// Limits of replies in parts.
const (
	maxParts   = 64       // of one reply
	maxPending = 16 << 20 // bytes that a client keeps of replies that are not complete
)

// split cuts the text of a reply into parts that fit into messages, one at least.
func split(s string) []string {
	var parts []string
	for len(s) > maxData {
		end := maxData
		for !utf8.RuneStart(s[end]) {
			end--
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return append(parts, s)
}

// assembly puts the replies of nodes together.
type assembly struct {
	pending map[string]*partial // by node
	done    map[string]bool     // nodes whose reply is complete
	bytes   int                 // in pending
}

type partial struct {
	parts []string
	have  int // parts that came
	size  int
}

// add takes a part. When it was the last one missing the whole text is returned.
func (a *assembly) add(h *head, data string) (whole string, complete bool) {
	if a.done[h.From] || h.Parts < 1 || h.Parts > maxParts || h.Part < 0 || h.Part >= h.Parts {
		return "", false
	}
	p := a.pending[h.From]
	if p == nil {
		if len(a.pending)+len(a.done) >= MaxReplies {
			return "", false
		}
		p = &partial{parts: make([]string, h.Parts)}
		a.pending[h.From] = p
	}
	// data may be empty only in a reply that is not of this package; it then never completes
	if len(p.parts) != h.Parts || p.parts[h.Part] != "" || data == "" || a.bytes+len(data) > maxPending {
		return "", false
	}
	p.parts[h.Part], p.have, p.size = data, p.have+1, p.size+len(data)
	a.bytes += len(data)
	if p.have < h.Parts {
		return "", false
	}
	a.bytes -= p.size
	delete(a.pending, h.From)
	a.done[h.From] = true
	return strings.Join(p.parts, ""), true
}

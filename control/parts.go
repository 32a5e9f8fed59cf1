package control

import (
	"strings"
	"unicode/utf8"
)

// Limits of replies in several parts.
const (
	maxParts   = 64       // of one reply
	maxPending = 16 << 20 // bytes of incomplete replies in a client
)

// split splits the text of a reply into at least one part of at most maxData bytes. It never splits
// a UTF-8 character.
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

// assembly joins the parts of the replies to one command, by node. Not safe for concurrent use.
type assembly struct {
	pending map[string]*partial // by node
	done    map[string]bool     // nodes with a complete reply
	bytes   int                 // in pending
}

// partial holds the parts received so far of one reply.
type partial struct {
	parts []string
	have  int // number of received parts
	size  int
}

// add adds a part of the reply of node h.From. If it completes the reply, it returns the whole text
// and true; otherwise "" and false.
//
// It ignores parts that are invalid, empty or repeated, parts after the reply was complete, and
// parts beyond a limit: maxParts, MaxReplies or maxPending.
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
	// An empty part never comes from this package; such a reply remains incomplete.
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

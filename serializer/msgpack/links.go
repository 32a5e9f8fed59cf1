package msgpack

import (
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// links writes a pair with all links of an envelope as one flat array. A link comes before the
// links below it. It writes nothing without links.
func (w *writer) links(e *task.Envelope) {
	n := countLinks(e.Then) + countLinks(e.Else)
	if e.Chord != nil {
		n += 1 + countBelow(e.Chord)
	}
	if n == 0 {
		return
	}
	w.key(keyLinks)
	w.b = rawmsgpack.AppendArrayLen(w.b, n)
	next := 0
	w.linkList(e.Then, linkThen, 0, &next)
	w.linkList(e.Else, linkElse, 0, &next)
	if e.Chord != nil {
		w.link(e.Chord, linkChord, 0, &next)
	}
}

// countLinks returns the number of these links and all links below them.
func countLinks(links []task.Link) int {
	n := len(links)
	for i := range links {
		n += countBelow(&links[i])
	}
	return n
}

// countBelow returns the number of all links below l, without l itself.
func countBelow(l *task.Link) int {
	n := countLinks(l.Then) + countLinks(l.Else) + countLinks(l.Members)
	if l.Chord != nil {
		n += 1 + countBelow(l.Chord)
	}
	return n
}

// linkList writes links, each followed by the links below it. The arguments are those of link.
func (w *writer) linkList(links []task.Link, kind, of int, next *int) {
	for i := range links {
		w.link(&links[i], kind, of, next)
	}
}

// link writes l as one element of the flat array, and then the links below it. kind is the role of
// l, such as linkThen. of is the number of its parent, from 1; 0: the envelope. next is the number
// of links written so far; link adds to it.
func (w *writer) link(l *task.Link, kind, of int, next *int) {
	*next++
	self := *next // 1 + index of this link
	lw := writer{b: append(w.b, 0xde, 0, 0)}
	start := len(w.b)
	lw.id(keyID, l.ID)
	lw.text(keyName, l.Name)
	lw.args(l.ContentType, l.Args)
	lw.metadata(&l.Meta)
	lw.text(keyLinkQueue, l.Queue)
	lw.text(keyLinkFeed, string(l.Feed))
	lw.text(keyLinkField, l.Field)
	lw.id(keyGroup, l.Group)
	lw.count(keyGroupIndex, l.GroupIndex)
	lw.count(keyGroupSize, l.GroupSize)
	lw.text(keyLinkPolicy, string(l.Policy))
	lw.text(keyReplyTo, l.ReplyTo)
	lw.optText(keyCorrelation, l.Correlation)
	lw.headers(l.Headers)
	lw.texts(keyLinkWithout, l.Without)
	lw.flag(keyLinkEach, l.Each)
	lw.flag(keyLinkLast, l.Last)
	lw.count(keyLinkOf, of)
	lw.count(keyLinkKind, kind)
	w.b = lw.shut(start)
	w.linkList(l.Then, linkThen, self, next)
	w.linkList(l.Else, linkElse, self, next)
	w.linkList(l.Members, linkMember, self, next)
	if l.Chord != nil {
		w.link(l.Chord, linkCallback, self, next)
	}
}

// flag writes a pair with the value true. It writes nothing for false.
func (w *writer) flag(k byte, yes bool) {
	if yes {
		w.key(k)
		w.b = rawmsgpack.AppendBool(w.b, true)
	}
}

// texts writes a pair with a list of texts. It writes nothing for an empty list.
func (w *writer) texts(k byte, list []string) {
	if len(list) == 0 {
		return
	}
	w.key(k)
	w.b = rawmsgpack.AppendArrayLen(w.b, len(list))
	for _, s := range list {
		w.b = rawmsgpack.AppendText(w.b, s)
	}
}

// shut writes the header of the map that began at start with three reserved bytes, and returns the
// bytes.
func (w *writer) shut(start int) []byte {
	if w.n < 16 {
		w.b = slices.Delete(w.b, start+1, start+3)
		w.b[start] = 0x80 | byte(w.n)
	} else {
		w.b[start+2] = byte(w.n)
	}
	return w.b
}

// flatLink is a link of the flat array. of is the number of its parent, from 1; 0: the envelope.
// kind is its role, such as linkThen.
type flatLink struct {
	link task.Link
	of   int
	kind int
}

// readLinks reads the flat array of links and puts each link below its parent, in e or another
// link. It leaves an error in r for too many links and for an invalid parent or kind.
func readLinks(r *rawmsgpack.Reader, e *task.Envelope) {
	n := r.ArrayLen()
	if n > serializer.MaxLinks {
		r.Fail(fmt.Errorf("%d links, at most %d", n, serializer.MaxLinks))
		return
	}
	flat := make([]flatLink, 0, n)
	for i := 0; i < n && r.Err() == nil; i++ {
		p := readLink(r)
		if !p.validPosition(i, e.Chord != nil) {
			r.Fail(errors.New("a link has an invalid parent or kind"))
			return
		}
		if p.kind == linkChord {
			e.Chord = new(task.Link) // set below, when its successors are known
		}
		flat = append(flat, p)
	}
	// Backwards: a link that is added to its parent has all its successors, in reverse order.
	for i := len(flat) - 1; i >= 0; i-- {
		p := &flat[i]
		slices.Reverse(p.link.Then)
		slices.Reverse(p.link.Else)
		slices.Reverse(p.link.Members)
		then, otherwise := &e.Then, &e.Else
		if p.of > 0 {
			then, otherwise = &flat[p.of-1].link.Then, &flat[p.of-1].link.Else
		}
		switch p.kind {
		case linkThen:
			*then = append(*then, p.link)
		case linkElse:
			*otherwise = append(*otherwise, p.link)
		case linkMember:
			of := &flat[p.of-1].link
			of.Members = append(of.Members, p.link)
		case linkCallback:
			of := &flat[p.of-1].link
			if of.Chord != nil {
				r.Fail(errors.New("two links follow one group"))
				return
			}
			of.Chord = &p.link
		default:
			*e.Chord = p.link
		}
	}
	slices.Reverse(e.Then)
	slices.Reverse(e.Else)
}

// validPosition reports whether p can be the link at index i: its parent comes before it, and its
// kind fits the parent. chord reports whether the envelope has a chord already.
func (p *flatLink) validPosition(i int, chord bool) bool {
	if p.of < 0 || p.of > i {
		return false
	}
	switch p.kind {
	case linkThen, linkElse:
		return true
	case linkMember, linkCallback:
		return p.of > 0
	case linkChord:
		return p.of == 0 && !chord
	}
	return false
}

// readLink reads one element of the flat array. It skips unknown keys. It leaves an error in r.
func readLink(r *rawmsgpack.Reader) flatLink {
	var p flatLink
	l := &p.link
	var seen rawmsgpack.Keys
	for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
		switch key := r.Key(&seen); key {
		case keyID:
			l.ID = readID(r, "")
		case keyName:
			l.Name = string(r.Text())
		case keyArgs:
			l.Args = r.Bytes()
		case keyContentType:
			l.ContentType = readContentType(r)
		case keyLinkQueue:
			l.Queue = string(r.Text())
		case keyLinkFeed:
			l.Feed = task.Feed(r.Text())
		case keyLinkField:
			l.Field = string(r.Text())
		case keyGroup:
			l.Group = readID(r, "")
		case keyGroupIndex:
			l.GroupIndex = readSize(r)
		case keyGroupSize:
			l.GroupSize = readSize(r)
		case keyLinkPolicy:
			l.Policy = task.Policy(r.Text())
		case keyReplyTo:
			l.ReplyTo = string(r.Text())
		case keyCorrelation:
			l.Correlation = task.Set(string(r.Text()))
		case keyHeaders:
			l.Headers = readHeaders(r)
		case keyLinkWithout:
			l.Without = readTexts(r)
		case keyLinkEach:
			l.Each = r.Bool()
		case keyLinkLast:
			l.Last = r.Bool()
		case keyLinkOf:
			p.of = serializer.Count(r.Int())
		case keyLinkKind:
			p.kind = serializer.Count(r.Int())
		default:
			if !readMetadata(r, key, &l.Meta) {
				r.Skip()
			}
		}
	}
	return p
}

// readTexts reads a list of names of headers. It leaves an error in r for too many.
func readTexts(r *rawmsgpack.Reader) []string {
	n := r.ArrayLen()
	if n > serializer.MaxHeaders {
		r.Fail(fmt.Errorf("%d headers to leave out, at most %d", n, serializer.MaxHeaders))
		return nil
	}
	var list []string
	for ; n > 0 && r.Err() == nil; n-- {
		list = append(list, string(r.Text()))
	}
	return list
}

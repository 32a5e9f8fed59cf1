package serializer

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of an envelope, besides its arguments. A Format writes and reads no more.
const (
	MaxHeaders     = 1000     // entries of Headers
	MaxHeaderBytes = 64 << 10 // keys and values of Headers together
	MaxLinks       = 1000     // links in Then, Else and Chord, including nested ones
	MaxNodeID      = 255      // bytes of Origin and ReplyTo
	MaxText        = 64 << 10 // bytes of Correlation, content types and other free texts
)

// CheckEnvelope returns the first reason why a Format must not write or return e, or nil. It is for
// authors of Formats, which wrap the error with [ErrValue] in Encode and [ErrMalformed] in Decode.
//
//   - A bad name or id wraps [task.ErrBadName] or [task.ErrBadID]; an empty one is valid.
//   - Other reasons are a count out of range, text that is not UTF-8, and too many headers or
//     links.
func CheckEnvelope(e *task.Envelope) error {
	if e.Name != "" {
		if err := task.CheckName(e.Name); err != nil {
			return err
		}
	}
	for _, id := range [...]task.ID{e.ID, e.Root, e.Parent, e.Group} {
		if id != "" {
			if err := id.Check(); err != nil {
				return err
			}
		}
	}
	if e.GroupSize < 0 || e.GroupSize > math.MaxInt32 || e.GroupSize > 0 && e.GroupIndex >= e.GroupSize {
		return fmt.Errorf("group index %d of %d", e.GroupIndex, e.GroupSize)
	}
	if !validText(e.Copy) || !validText(e.Burst) {
		return errors.New("the name of a copy or a burst is not UTF-8 or too long")
	}
	if e.Version < 0 || e.GroupIndex < 0 || e.GroupIndex > math.MaxInt32 || e.Retries < 0 || e.Crashes < 0 || e.Parked < 0 || e.Life < 0 {
		return fmt.Errorf("count out of range: version %d, group index %d, retries %d, crashes %d, parked %d, life %d",
			e.Version, e.GroupIndex, e.Retries, e.Crashes, e.Parked, e.Life)
	}
	if len(e.Origin) > MaxNodeID || len(e.ReplyTo) > MaxNodeID {
		return fmt.Errorf("node id longer than %d bytes", MaxNodeID)
	}
	if !validText(e.Origin) || !validText(e.ReplyTo) || !validText(e.Correlation) || !validText(e.ContentType) {
		return fmt.Errorf("origin, reply-to, correlation or content type is not UTF-8 or longer than %d bytes", MaxText)
	}
	if len(e.Headers) > 0 {
		if err := checkHeaders(e.Headers); err != nil {
			return err
		}
	}
	if err := checkMetadata(&e.Meta); err != nil {
		return err
	}
	if e.Base != nil {
		if err := checkMetadata(e.Base); err != nil {
			return err
		}
	}
	if len(e.Then) == 0 && len(e.Else) == 0 && e.Chord == nil {
		return nil
	}
	left := MaxLinks
	if e.Chord != nil {
		if err := checkLink(e.Chord, &left); err != nil {
			return err
		}
	}
	return checkLinks(e.Then, e.Else, &left)
}

// validText reports whether s is valid UTF-8 of up to MaxText bytes.
func validText(s string) bool {
	return s == "" || len(s) <= MaxText && (naming.ASCII(s) || utf8.ValidString(s))
}

// checkHeaders returns nil if an envelope may have the headers h. Otherwise it returns an error:
// too many, too many bytes in keys and values, or text that is not UTF-8.
func checkHeaders(h map[string]string) error {
	if len(h) > MaxHeaders {
		return fmt.Errorf("%d headers, at most %d", len(h), MaxHeaders)
	}
	size := 0
	for k, v := range h {
		size += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return errors.New("a header is not UTF-8")
		}
	}
	if size > MaxHeaderBytes {
		return fmt.Errorf("headers of %d bytes, at most %d", size, MaxHeaderBytes)
	}
	return nil
}

// checkWithout returns nil if a link may leave out headers with these names. Otherwise it returns
// an error: too many, too many bytes, or text that is not UTF-8.
func checkWithout(names []string) error {
	if len(names) > MaxHeaders {
		return fmt.Errorf("%d headers to leave out, at most %d", len(names), MaxHeaders)
	}
	size := 0
	for _, k := range names {
		if size += len(k); size > MaxHeaderBytes || !utf8.ValidString(k) {
			return fmt.Errorf("headers to leave out are not UTF-8 or longer than %d bytes", MaxHeaderBytes)
		}
	}
	return nil
}

// checkMetadata returns an error for values of m that cannot be clamped: a bad queue name or
// fairness key, other texts that are not UTF-8 or too long, and negative durations. Otherwise it
// returns nil.
func checkMetadata(m *task.Metadata) error {
	if q, ok := m.Queue.Get(); ok {
		if err := task.CheckName(q); err != nil {
			return err
		}
	}
	if !naming.ValidKey(m.FairnessKey.Or("")) {
		return errors.New("the fairness key is not UTF-8, too long, or has control characters")
	}
	for _, s := range [...]string{m.Retry.Or(""), m.RateLimit.Or(""), m.Serializer.Or(""), m.Compression.Or(""), m.ResultStore.Or("")} {
		if !validText(s) {
			return errors.New("a text of the metadata is not UTF-8 or too long")
		}
	}
	if d := min(m.RetryDelay.Or(0), m.TimeLimit.Or(0), m.SoftTimeLimit.Or(0), m.ResultTTL.Or(0)); d < 0 {
		return fmt.Errorf("negative duration %v in the metadata", d)
	}
	return nil
}

// checkLinks checks the links of both lists and all links below them, and returns the first error
// of checkLink. left is the number of links that the envelope may still have; checkLinks subtracts
// the links that it has checked.
func checkLinks(then, otherwise []task.Link, left *int) error {
	for _, links := range [...][]task.Link{then, otherwise} {
		for i := range links {
			if err := checkLink(&links[i], left); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLink returns nil if l and all links below it may be in an envelope, otherwise the first
// reason against that. left is the number of links that the envelope may still have; checkLink
// subtracts l and the links below it. It returns an error if left becomes negative.
func checkLink(l *task.Link, left *int) error {
	if *left--; *left < 0 {
		return fmt.Errorf("more than %d links", MaxLinks)
	}
	if len(l.Members) == 0 || l.Name != "" {
		if err := task.CheckName(l.Name); err != nil {
			return err
		}
	}
	for _, id := range [...]task.ID{l.ID, l.Group} {
		if id != "" {
			if err := id.Check(); err != nil {
				return err
			}
		}
	}
	if len(l.ReplyTo) > MaxNodeID || !validText(l.ReplyTo) {
		return fmt.Errorf("the reply address of a link is not UTF-8 or longer than %d bytes", MaxNodeID)
	}
	if !l.Policy.Valid() {
		return fmt.Errorf("a group has the policy %q", utf.Cut(string(l.Policy), 32))
	}
	if l.GroupIndex < 0 || l.GroupIndex > math.MaxInt32 || l.GroupSize < 0 || l.GroupSize > math.MaxInt32 {
		return fmt.Errorf("group index %d of %d", l.GroupIndex, l.GroupSize)
	}
	if l.Queue != "" {
		if err := task.CheckName(l.Queue); err != nil {
			return err
		}
	}
	switch l.Feed {
	case task.FeedWhole, task.FeedInto, task.FeedPrepend, task.FeedNone:
	default:
		return fmt.Errorf("a link feeds %q", utf.Cut(string(l.Feed), 32))
	}
	if err := checkHeaders(l.Headers); err != nil {
		return err
	}
	if err := checkWithout(l.Without); err != nil {
		return err
	}
	if !validText(l.ContentType) || !validText(l.Field) || !validText(l.Correlation.Or("")) {
		return errors.New("a text of a link is not UTF-8 or too long")
	}
	if err := checkMetadata(&l.Meta); err != nil {
		return err
	}
	if l.Chord != nil {
		if err := checkLink(l.Chord, left); err != nil {
			return err
		}
	}
	if len(l.Members) > 0 {
		if err := checkLinks(l.Members, nil, left); err != nil {
			return err
		}
	}
	return checkLinks(l.Then, l.Else, left)
}

// Limits of the times in an envelope. Times outside are clamped.
const (
	minMilli = 0               // 1970-01-01
	maxMilli = 253370764799999 // the end of the year 9998
)

// Milli returns t in milliseconds since 1970, for an envelope. Times outside the years 1970 to 9998
// are clamped.
func Milli(t time.Time) int64 {
	switch y := t.UTC().Year(); { // UnixMilli overflows in distant years
	case y < 1970:
		return minMilli
	case y > 9998:
		return maxMilli
	}
	return min(max(t.UnixMilli(), minMilli), maxMilli)
}

// FromMilli returns the time of ms milliseconds since 1970, in UTC, clamped to the years 1970 to
// 9998.
func FromMilli(ms int64) time.Time {
	return time.UnixMilli(min(max(ms, minMilli), maxMilli)).UTC()
}

// Millis returns d in whole milliseconds, rounded up. So a limit below one millisecond does not
// become 0, which means no limit.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// FromMillis returns the duration of ms milliseconds, at most [task.MaxTimeLimit]. A negative value
// stays negative; [CheckEnvelope] refuses it.
func FromMillis(ms int64) time.Duration {
	return time.Duration(min(max(ms, -1), int64(task.MaxTimeLimit/time.Millisecond))) * time.Millisecond
}

// Count returns n clamped to the counts of an envelope: at most 2^31-1. Each negative n becomes -1,
// which [CheckEnvelope] refuses.
func Count(n int64) int { return int(min(max(n, -1), math.MaxInt32)) }

// Priority returns p clamped to 0 to [task.MaxPriority].
func Priority(p int64) int { return int(min(max(p, 0), task.MaxPriority)) }

// Weight returns w clamped to 1 to [task.MaxFairnessWeight].
func Weight(w int64) int { return int(min(max(w, 1), task.MaxFairnessWeight)) }

// NewMessage returns a message with the ID, Priority, Key, Weight and Expires of e. A Format adds
// the other fields.
func NewMessage(e *task.Envelope, contentType string, body []byte) *broker.Message {
	m := &broker.Message{ID: string(e.ID), ContentType: contentType, Body: body, Priority: task.DefaultPriority}
	if e.Base != nil {
		m.Priority = e.Base.Priority.Or(m.Priority)
		m.Key, m.Weight = e.Base.FairnessKey.Or(""), e.Base.FairnessWeight.Or(0)
		m.Expires = e.Base.Expires.Or(m.Expires)
	}
	m.Priority = e.Meta.Priority.Or(m.Priority)
	m.Key, m.Weight = e.Meta.FairnessKey.Or(m.Key), e.Meta.FairnessWeight.Or(m.Weight)
	m.Expires = e.Meta.Expires.Or(m.Expires)
	return m
}

// CheckEncoding returns [ErrUnknownType] if the message's content-encoding property says that its
// body is encoded, for example compressed. Every Format calls it first.
func CheckEncoding(m *broker.Message) error {
	if enc := m.Properties["content-encoding"]; enc != "" && enc != "identity" {
		return fmt.Errorf("%w: content encoding %q", ErrUnknownType, utf.Cut(enc, 64))
	}
	return nil
}

package redisschedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// member returns the member of the sorted set S:next that stands for an entry. The package comment
// shows the members.
func member(id string) string { return `{"id":` + quoted(id) + `}` }

// claimMember returns the member of S:next for an owner's claim on a tick, as the package comment
// shows it.
func claimMember(k *schedule.Tick, owner string) string {
	return `{"id":` + quoted(k.ID) + `,"due":` + strconv.FormatInt(k.Due.UnixMilli(), 10) + `,"by":` + quoted(owner) + `}`
}

// quoted returns s as a JSON string with a minimum of escapes.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return strconv.Quote(s) // cannot happen: a string can always be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// claim holds the fields of a member beyond the id: the instant of the claimed tick and the owner.
type claim struct {
	Due json.Number `json:"due"`
	By  *string     `json:"by"`
}

// readClaim decodes a member. By is nil if the member is not a claim: not JSON, or without "by" or
// a whole number as "due".
func readClaim(member string) (c claim) {
	if json.Unmarshal([]byte(member), &c) != nil {
		return claim{}
	}
	if _, err := c.Due.Int64(); err != nil {
		c.By = nil
	}
	return c
}

// idsOf returns the id in a member; an empty list if the member is not JSON with an id.
func idsOf(member string) []string {
	var m struct {
		ID *string `json:"id"`
	}
	if json.Unmarshal([]byte(member), &m) != nil || m.ID == nil {
		return nil
	}
	return []string{*m.ID}
}

// isClaim reports whether a member is a claim, and not the entry's own member.
func isClaim(member string) bool { return readClaim(member).By != nil }

// ref returns the Tick.Ref of a member, its score and the version of its entry: what Claim compares
// with Redis later.
func ref(member, score, version string) string { return score + " " + version + " " + member }

// found returns the member that Due found, its score and the version of the entry, from Tick.Ref.
// For a tick without a Ref it returns the member that the tick would have if nothing changed since.
// The score is then the due time, or "" for a claim, and the version is "".
func found(k *schedule.Tick) (m, score, version string) {
	if score, rest, ok := strings.Cut(k.Ref, " "); ok && score != "" {
		version, m, _ = strings.Cut(rest, " ")
		return m, score, version
	}
	if k.Owner != "" {
		return claimMember(k, k.Owner), "", ""
	}
	return member(k.ID), strconv.FormatInt(k.Due.UnixMilli(), 10), ""
}

// instant returns the UTC time of a score in milliseconds, rounded down. Times after the year 9999
// are limited to its end; very early times are limited likewise. Returns an error if the score is
// not a number.
func instant(score string) (time.Time, error) {
	f, err := strconv.ParseFloat(score, 64)
	if err != nil || math.IsNaN(f) {
		return time.Time{}, fmt.Errorf("score %q", score)
	}
	const far = 253402300799000 // end of the year 9999
	return time.UnixMilli(int64(math.Floor(max(min(f, far), -far)))).UTC(), nil
}

// Number of values before the first tick in the answer of due.lua, and of values for each tick.
const (
	dueHead  = 3
	dueWidth = 10
)

// readDue decodes the answer of due.lua: the Batch, and the members that name no entry. The answer
// holds the time, the next time ("": none) and 1 if there is more. Then it has ten values for each
// member, see readTick; a nil payload means that the member names no entry. Returns
// [schedule.ErrUnavailable] if the answer has another form.
func readDue(v any) (schedule.Batch, []deadMember, error) {
	list, ok := v.([]any)
	if !ok || len(list) < dueHead || (len(list)-dueHead)%dueWidth != 0 {
		return schedule.Batch{}, nil, fmt.Errorf("redisschedule due: %w: the answer is a %T of %d", schedule.ErrUnavailable, v, len(list))
	}
	var b schedule.Batch
	var err error
	if b.Now, err = instant(text(list[0])); err != nil {
		return b, nil, fmt.Errorf("redisschedule due: %w: %w", schedule.ErrUnavailable, err)
	}
	if next := text(list[1]); next != "" {
		if b.Next, err = instant(next); err != nil {
			return b, nil, fmt.Errorf("redisschedule due: %w: %w", schedule.ErrUnavailable, err)
		}
	}
	b.More = list[2] == int64(1)
	var lost []deadMember
	for row := list[dueHead:]; len(row) > 0; row = row[dueWidth:] {
		if row[3] == nil {
			lost = append(lost, deadMember{text(row[2]), text(row[0])})
			continue
		}
		k, err := readTick(row)
		if err != nil {
			return b, nil, fmt.Errorf("redisschedule due: %w: %w", schedule.ErrUnavailable, err)
		}
		b.Ticks = append(b.Ticks, k)
	}
	return b, lost, nil
}

// readTick decodes one tick of the answer of due.lua: row holds its member, score, id, payload,
// state, last instant, last runs, group, version and the score of the entry. Due of a claimed tick
// comes from the member, of others from the score. Returns an error if the score or a claim's
// instant is not a number.
func readTick(row []any) (schedule.Tick, error) {
	m, score := text(row[0]), text(row[1])
	at, err := instant(score)
	k := schedule.Tick{Entry: schedule.Entry{ID: text(row[2]), Payload: []byte(text(row[3]))}, Due: at, Ref: ref(m, score, text(row[8]))}
	if c := readClaim(m); c.By != nil {
		ms, err := c.Due.Int64()
		if err != nil {
			return k, err
		}
		k.Owner, k.Due = *c.By, time.UnixMilli(ms).UTC()
	}
	if next, err := instant(text(row[9])); err == nil {
		k.Next = next
	}
	setOwn(&k.Entry, row[4:8])
	return k, err
}

// setOwn sets State, Last, Runs and Group of an entry from the values of the hash S:swarmiji. nil
// or unreadable values leave them unset.
func setOwn(e *schedule.Entry, values []any) {
	if s := text(values[0]); s != "" {
		e.State = []byte(s)
	}
	if l, err := instant(text(values[1])); err == nil {
		e.Last = l
	}
	for _, one := range strings.Fields(text(values[2])) {
		if at, err := instant(one); err == nil {
			e.Runs = append(e.Runs, at)
		}
	}
	e.Group = text(values[3])
}

// text returns a value of an answer as a string; "" for nil and for other types.
func text(v any) string {
	s, _ := v.(string)
	return s
}

// fixed reports whether the entry's cron fields name a single instant: all seven are numbers, but
// the weekday may be "*". Such an entry never has a second tick. It is false for payloads that
// cannot be read and for other specs.
func fixed(payload []byte) bool {
	c, err := schedule.Decode(payload)
	if err != nil {
		return false
	}
	fields := strings.Fields(c.When)
	for i, f := range fields {
		if _, err := strconv.Atoi(f); err != nil && (i != 3 || f != "*") {
			return false
		}
	}
	return len(fields) == 7
}

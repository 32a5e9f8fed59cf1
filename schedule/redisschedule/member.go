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

// member is the member of S:next that stands for an entry.
func member(id string) string { return `{"id":` + quoted(id) + `}` }

// claimed is the member of an owner's claim on a tick.
func claimed(k *schedule.Tick, owner string) string {
	return `{"id":` + quoted(k.ID) + `,"due":` + strconv.FormatInt(k.Due.UnixMilli(), 10) + `,"by":` + quoted(owner) + `}`
}

// quoted writes a text as JSON, with no more escapes than needed: a hash is what it is.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return strconv.Quote(s) // a string can always be written
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// claim is what a member says beyond the id.
type claim struct {
	Due json.Number `json:"due"`
	By  *string     `json:"by"`
}

// readClaim reads a member. By is nil unless it is a claim.
func readClaim(member string) (c claim) {
	if json.Unmarshal([]byte(member), &c) != nil {
		return claim{}
	}
	if _, err := c.Due.Int64(); err != nil {
		c.By = nil
	}
	return c
}

// idsOf is the id that a member names, if it names one.
func idsOf(member string) []string {
	var m struct {
		ID *string `json:"id"`
	}
	if json.Unmarshal([]byte(member), &m) != nil || m.ID == nil {
		return nil
	}
	return []string{*m.ID}
}

func isClaim(member string) bool { return readClaim(member).By != nil }

// ref carries the member and the score that were found.
func ref(member, score string) string { return score + " " + member }

// found is the member that Due found, and its score. A tick that Due did not return is looked for as it would be at rest.
func found(k *schedule.Tick) (m, score string) {
	if score, m, ok := strings.Cut(k.Ref, " "); ok && score != "" {
		return m, score
	}
	if k.Owner != "" {
		return claimed(k, k.Owner), ""
	}
	return member(k.ID), strconv.FormatInt(k.Due.UnixMilli(), 10)
}

// instant is the time of a score. What is far off any calendar is brought near it.
func instant(score string) (time.Time, error) {
	f, err := strconv.ParseFloat(score, 64)
	if err != nil || math.IsNaN(f) {
		return time.Time{}, fmt.Errorf("score %q", score)
	}
	const far = 253402300799000 // the end of the year 9999
	return time.UnixMilli(int64(math.Floor(max(min(f, far), -far)))).UTC(), nil
}

// columns of a tick in the answer of due.lua, and where they begin.
const (
	dueHead  = 3
	dueWidth = 6
)

// readDue reads the answer of due.lua, and what of it nobody can run.
func readDue(v any) (schedule.Batch, []dead, error) {
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
	var lost []dead
	for row := list[dueHead:]; len(row) > 0; row = row[dueWidth:] {
		if row[3] == nil {
			lost = append(lost, dead{text(row[2]), text(row[0])})
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

func readTick(row []any) (schedule.Tick, error) {
	m, score := text(row[0]), text(row[1])
	at, err := instant(score)
	k := schedule.Tick{Entry: schedule.Entry{ID: text(row[2]), Payload: []byte(text(row[3]))}, Due: at, Ref: ref(m, score)}
	if c := readClaim(m); c.By != nil {
		ms, err := c.Due.Int64()
		if err != nil {
			return k, err
		}
		k.Owner, k.Due = *c.By, time.UnixMilli(ms).UTC()
	} else {
		k.Next = at
	}
	keep(&k.Entry, row[4], row[5])
	return k, err
}

// keep puts what the hash swarmiji holds into an entry.
func keep(e *schedule.Entry, state, last any) {
	if s := text(state); s != "" {
		e.State = []byte(s)
	}
	if l, err := instant(text(last)); err == nil {
		e.Last = l
	}
}

// text is a part of an answer as a string; nil is "".
func text(v any) string {
	s, _ := v.(string)
	return s
}

// fixed reports whether an entry's cron names one instant, so that it never has two ticks.
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

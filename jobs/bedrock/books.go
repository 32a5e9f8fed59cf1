package bedrock

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
)

// What clients find in the data of a job with retryAfter while it runs: which hand-out this is, and
// when the run of one that repeats from SCHEDULED was to begin.
const (
	keyCount    = "retryAfterCount"
	keyOriginal = "originalNextRun"
)

// shown returns the data of a job as clients see them, after so many hand-outs of its run.
func shown(j *jobs.Row, handouts int32) []byte {
	if handouts <= 0 {
		return j.Data
	}
	data := with(without(j.Data, keyCount), keyCount, strconv.AppendInt(nil, int64(handouts), 10))
	if !j.Mock && strings.HasPrefix(strings.ToUpper(strings.TrimSpace(j.Repeat)), "SCHEDULED") {
		data = with(without(data, keyOriginal), keyOriginal, appendTime(nil, j.Scheduled))
	}
	return data
}

// given takes out of the data of a job with retryAfter what a client was shown there.
func (c *call) given(ctx context.Context, id jobs.ID, data []byte) ([]byte, error) {
	less := without(data, keyCount, keyOriginal)
	if len(less) == len(data) {
		return data, nil
	}
	j, err := c.s.Query(ctx, id)
	if err != nil || j.RetryAfter == "" {
		return data, err
	}
	return less, nil
}

// without returns the object without these keys; all other members stay as they were written.
func without(data []byte, keys ...string) []byte {
	if !slices.ContainsFunc(keys, func(k string) bool { return bytes.Contains(data, []byte(k)) }) {
		return data
	}
	all := slices.Collect(members(data))
	n := len(all)
	if all = slices.DeleteFunc(all, func(m member) bool { return slices.Contains(keys, string(m.key)) }); len(all) == n {
		return data
	}
	return writeMembers(all)
}

// with returns the object with one more member at its end.
func with(data []byte, key string, value []byte) []byte {
	text := append(strconv.AppendQuote(nil, key), ':')
	return writeMembers(append(slices.Collect(members(data)), member{text: append(text, value...)}))
}

// writeMembers writes an object.
func writeMembers(all []member) []byte {
	out := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.text...)
	}
	return append(out, '}')
}

package bedrock

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
)

// Fields that clients see in the data of a job with retryAfter while it runs. keyCount is the
// number of the current claim. keyOriginal is the time at which the run of a job that repeats from
// SCHEDULED was due.
const (
	keyCount    = "retryAfterCount"
	keyOriginal = "originalNextRun"
)

// dataForClient returns the data of a job as clients see them, after the given number of claims in
// its run. If handouts is 0 or below, that is j.Data. Otherwise it adds or replaces keyCount, and
// keyOriginal if the job repeats from SCHEDULED and is not a mock job. j is not changed.
func dataForClient(j *jobs.Row, handouts int32) []byte {
	if handouts <= 0 {
		return j.Data
	}
	data := with(without(j.Data, keyCount), keyCount, strconv.AppendInt(nil, int64(handouts), 10))
	if !j.Mock && strings.HasPrefix(strings.ToUpper(strings.TrimSpace(j.Repeat)), "SCHEDULED") {
		data = with(without(data, keyOriginal), keyOriginal, appendTime(nil, j.Scheduled))
	}
	return data
}

// dataFromClient returns data without the fields that dataForClient adds, if the job has
// retryAfter, and unchanged otherwise. It reads the job only if data contain such a field, and then
// returns the error of that read.
func (c *call) dataFromClient(ctx context.Context, id jobs.ID, data []byte) ([]byte, error) {
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

// without returns a JSON object without the members that have one of these keys. Without such a
// member it returns data itself. The text of all other members is unchanged.
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

// with returns a copy of a JSON object with one more member at its end. It does not replace a
// member with the same key.
func with(data []byte, key string, value []byte) []byte {
	text := append(strconv.AppendQuote(nil, key), ':')
	return writeMembers(append(slices.Collect(members(data)), member{text: append(text, value...)}))
}

// writeMembers returns a new JSON object with these members, in this order.
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

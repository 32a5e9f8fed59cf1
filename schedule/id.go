package schedule

import (
	"crypto/sha1" //nolint:gosec // the published layout names entries so; it protects nothing
	"encoding/hex"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// ID returns the id of the entry with this payload: its SHA-1 in 40 lower-case hex digits.
func ID(payload []byte) string {
	sum := sha1.Sum(payload) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// NameID returns the id of the entry with this name ([WithName]): the SHA-1 of "name", a zero byte
// and the name. So the entry keeps its id when its content changes, and a tick keeps its task id.
func NameID(name string) string { return ID([]byte("name\x00" + name)) }

// TickID returns the id of the task that runs a tick. It depends only on the schedule's name, the
// entry's id and the second of due. So every process gives a tick the same id, before and after a
// crash.
//
// Milliseconds of due are ignored: specs name whole seconds, and a store may move an AtOnce entry
// within its second.
func TickID(schedule, entry string, due time.Time) task.ID {
	return task.Derive(task.ID("schedule\x00"+schedule+"\x00"+entry), strconv.FormatInt(due.Truncate(time.Second).UnixMilli(), 10))
}

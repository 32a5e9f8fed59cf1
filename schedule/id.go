package schedule

import (
	"crypto/sha1" //nolint:gosec // the published layout names entries so; it protects nothing
	"encoding/hex"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// ID returns the id of an entry that is written in these bytes: their SHA-1, in 40 lower-case hex digits.
func ID(payload []byte) string {
	sum := sha1.Sum(payload) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// TickID returns the id of the task that an entry's tick becomes. It depends on these three alone,
// so that every process, before and after a crash, gives one tick one id. Of due its second
// counts: specs name whole seconds, and what is due at once waits for its turn within one.
func TickID(schedule, entry string, due time.Time) task.ID {
	return task.Derive(task.ID("schedule\x00"+schedule+"\x00"+entry), strconv.FormatInt(due.Truncate(time.Second).UnixMilli(), 10))
}

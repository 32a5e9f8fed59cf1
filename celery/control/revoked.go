package control

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"

	node "github.com/swarmiji/swarmiji/control"
)

// Limits of the list of revoked tasks, which are Celery's.
const (
	maxRevoked = 50_000
	revokedFor = 3 * time.Hour
)

// revoked is the list of tasks that commands have revoked, for the commands revoked and hello. The
// node keeps its own list, which decides whether a task runs. Safe for concurrent use.
type revoked struct {
	mu  sync.Mutex
	ids map[string]time.Time // when the task was revoked
}

// add adds ids. Beyond maxRevoked it removes the oldest.
func (r *revoked) add(ids []string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = make(map[string]time.Time)
	}
	for _, id := range ids {
		r.ids[id] = now
	}
	if len(r.ids) <= maxRevoked {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(r.ids), func(a, b string) int { return r.ids[a].Compare(r.ids[b]) })
	for _, id := range oldest[:len(oldest)-maxRevoked*9/10] {
		delete(r.ids, id)
	}
}

// without returns those of ids that are not in the list.
func (r *revoked) without(ids []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { _, known := r.ids[id]; return known })
}

// all returns the ids of the last 3 hours with their times.
func (r *revoked) all(now time.Time) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.ids, func(_ string, at time.Time) bool { return now.Sub(at) > revokedFor })
	return maps.Clone(r.ids)
}

// revoke revokes tasks on n and adds them to the list. If ids has one that no task can have, it
// revokes the others and returns an error.
func (s *Service) revoke(ctx context.Context, n node.Node, terminate bool, ids []string) error {
	rv, ok := capability.As[node.Revoker](n)
	if !ok {
		return errors.New("this worker cannot revoke tasks")
	}
	var foreign error
	valid, tasks := make([]string, 0, len(ids)), make([]task.ID, 0, len(ids))
	for _, id := range ids {
		if task.ID(id).Check() != nil {
			foreign = errors.New("ValueError(" + repr("not the id of a task: "+id) + ")")
			continue
		}
		valid, tasks = append(valid, id), append(tasks, task.ID(id))
	}
	for some := range slices.Chunk(tasks, node.MaxIDs) {
		if err := rv.Revoke(ctx, terminate, some...); err != nil {
			return err
		}
	}
	s.revoked.add(valid, time.Now())
	return foreign
}

// revokeNew revokes the tasks that another worker has revoked and this one does not know. It
// ignores ids that no task can have.
func (s *Service) revokeNew(ctx context.Context, n node.Node, theirs any) error {
	all, _ := theirs.(map[string]any)
	if len(all) > maxRevoked {
		return errors.New("the list of revoked tasks is too long")
	}
	ids := make([]string, 0, len(all))
	for one := range all {
		if task.ID(one).Check() == nil {
			ids = append(ids, one)
		}
	}
	return s.revoke(ctx, n, false, s.revoked.without(ids))
}

// forMingle returns the list as Celery's workers exchange it: for each id, the reading of the
// monotonic clock when it was revoked, and the id.
func (r *revoked) forMingle(now time.Time) map[string]any {
	up, out := uptime(), make(map[string]any)
	for id, at := range r.all(now) {
		out[id] = []any{up - now.Sub(at).Seconds(), id}
	}
	return out
}

// uptime returns the seconds since the start of the machine, which is what Python's monotonic clock
// counts on Linux. On other systems it is the time of day, so that the entry lasts.
func uptime() float64 {
	data, err := os.ReadFile("/proc/uptime")
	if err == nil {
		first, _, _ := strings.Cut(string(data), " ")
		if up, err := strconv.ParseFloat(first, 64); err == nil {
			return up
		}
	}
	return float64(time.Now().Unix())
}

package workflow

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of the reads of members. The sizes of results are unknown before the first read.
const (
	firstMembers = 16
	pageBytes    = 4 << 20
)

// readPage reads up to limit members from index from on, and decrypts and decompresses them. It
// waits for the gatherer, which it may call several times. It returns fewer members, at least one,
// if their results have pageBytes together, and never more than MaxMembersPage. It also returns
// fewer if some have not ended yet.
//
// After an error it returns no members. Returns a *groupError if a member cannot be opened, and
// errors of the gatherer.
func (c *Config) readPage(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	var page []resultstore.Record
	size := 0
	for limit = min(limit, resultstore.MaxMembersPage); len(page) < limit && size < pageBytes; {
		want := firstMembers
		if n := len(page); n > 0 {
			want = max(1, (pageBytes-size)*n/max(size, 1))
		}
		want = min(want, limit-len(page))
		more, err := c.Gatherer.Members(ctx, group, from+len(page), want)
		if err != nil {
			return nil, err
		}
		for i := range more {
			if err := c.Codec.OpenMember(&more[i], group, from+len(page)+i); err != nil {
				return nil, &groupError{fmt.Errorf("member %d of group %s: %w", from+len(page)+i, group, err)}
			}
			size += len(more[i].Result)
		}
		if page = append(page, more...); len(more) < want {
			break
		}
	}
	return page, nil
}

// Members returns the results of up to limit ended members of a group, from index from on, for a
// handler. A member that did not succeed has a Failure. It waits for the gatherer.
//
// It returns fewer than limit members if the next one has not ended yet, or if limit is above
// MaxMembersPage. If the results are large, it returns fewer too, but at least one. After an error
// of readPage it returns that error and no members.
func (c *Config) Members(ctx context.Context, group task.ID, from, limit int) ([]task.MemberResult, error) {
	page, err := c.readPage(ctx, group, from, limit)
	members := make([]task.MemberResult, len(page))
	for i := range page {
		rec := &page[i]
		members[i] = task.MemberResult{ContentType: rec.ContentType, Result: rec.Result}
		if rec.State != task.StateSucceeded {
			failure := failureOf(rec.ID, causeOf(rec))
			members[i].Failure = &failure
		}
	}
	return members, err
}

package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// RedisPair is a Redis server and its replica. The fields are named after the roles at the start:
// [RedisPair.Promote] swaps the roles, not the fields.
type RedisPair struct {
	Primary, Replica *Redis
}

// StartRedisReplica starts a server and a replica that follows it, which takes about a second. A
// write reaches the replica some time after it was answered, unless the client uses WAIT.
func StartRedisReplica(ctx context.Context, cfg RedisConfig) (*RedisPair, error) {
	return startPair(ctx, cfg, redisPassword())
}

// startPair starts a server and a replica with this password, and waits until the replica has a
// copy of the data. After an error both are closed.
func startPair(ctx context.Context, cfg RedisConfig, password string) (*RedisPair, error) {
	p := &RedisPair{}
	var err error
	p.Primary, err = startRedis(ctx, redisPlan{RedisConfig: cfg, name: "redis primary", password: password})
	if err != nil {
		return nil, err
	}
	p.Replica, err = startRedis(ctx, redisPlan{
		RedisConfig: cfg, name: "redis replica", password: password,
		lines: []string{"replicaof 127.0.0.1 " + strconv.Itoa(p.Primary.port)},
	})
	if err == nil {
		err = p.Replica.proc.await(ctx, p.Replica.linked)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Sync waits until the replica has the data that the primary holds at the call.
func (p *RedisPair) Sync(ctx context.Context) error {
	want, err := p.Primary.offset(ctx)
	if err != nil {
		return err
	}
	return p.Replica.proc.await(ctx, func(ctx context.Context) error {
		if has, err := p.Replica.offset(ctx); err != nil || has < want {
			return fmt.Errorf("the replica is at %d, the primary was at %d: %w", has, want, err)
		}
		return nil
	})
}

// offset returns the server's position in the stream of writes that replicas follow.
func (r *Redis) offset(ctx context.Context) (int64, error) {
	out, err := r.Do(ctx, "INFO", "replication")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(redisFields(fmt.Sprint(out))["master_repl_offset"], 10, 64)
}

// Cut stops the replication to the replica, as a broken network between the two would. The replica
// stays a replica.
func (p *RedisPair) Cut(ctx context.Context) error {
	const nowhere = "1" // a port on which no process listens
	if _, err := p.Replica.Do(ctx, "REPLICAOF", "127.0.0.1", nowhere); err != nil {
		return fmt.Errorf("%s: REPLICAOF: %w", p.Replica.name, err)
	}
	return nil
}

// Promote makes the replica a primary, as an operator does after the loss of the primary. Writes
// that the primary had not sent yet are lost. It does not touch the old primary.
func (p *RedisPair) Promote(ctx context.Context) error { return p.Replica.follow(ctx, nil) }

// Demote makes the old primary a replica of the promoted server. It waits until the old primary has
// replaced its data with the other server's. The old primary must run.
func (p *RedisPair) Demote(ctx context.Context) error {
	if err := p.Primary.follow(ctx, p.Replica); err != nil {
		return err
	}
	return p.Primary.proc.await(ctx, p.Primary.linked)
}

// Close kills both servers and removes their data. It is idempotent.
func (p *RedisPair) Close() error { return closeAll(p.Primary, p.Replica) }

// closeAll closes the servers that are not nil, and returns their errors joined.
func closeAll(servers ...*Redis) error {
	var errs []error
	for _, r := range servers {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}

// follow makes the server a replica of another server, or a primary if primary is nil. The role
// survives a restart.
func (r *Redis) follow(ctx context.Context, primary *Redis) error {
	host, port := "NO", "ONE"
	if primary != nil {
		host, port = "127.0.0.1", strconv.Itoa(primary.port)
	}
	if _, err := r.Do(ctx, "REPLICAOF", host, port); err != nil {
		return fmt.Errorf("%s: REPLICAOF %s %s: %w", r.name, host, port, err)
	}
	if _, err := r.Do(ctx, "CONFIG", "REWRITE"); err != nil {
		return fmt.Errorf("%s: CONFIG REWRITE: %w", r.name, err)
	}
	return nil
}

// linked returns nil if a replica follows its primary and has a full copy of it, also in its own
// append-only file.
func (r *Redis) linked(ctx context.Context) error {
	out, err := r.Do(ctx, "INFO")
	if err != nil {
		return err
	}
	info := redisFields(fmt.Sprint(out))
	if info["role"] != "slave" || info["master_link_status"] != "up" {
		return fmt.Errorf("%s: role %s, link %s", r.name, info["role"], info["master_link_status"])
	}
	if info["aof_rewrite_in_progress"] != "0" || info["aof_rewrite_scheduled"] != "0" {
		return fmt.Errorf("%s: it writes its append-only file", r.name)
	}
	return nil
}

// redisFields parses lines of name:value.
func redisFields(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

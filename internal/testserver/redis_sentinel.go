package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// RedisSentinel is a pair of servers with a sentinel that watches them. The sentinel promotes the
// replica when the primary has been unreachable for a second. One sentinel decides alone.
type RedisSentinel struct {
	RedisPair
	Sentinel *Redis
}

// masterName is the sentinel's name for the pair.
const masterName = "tests"

// StartRedisSentinel starts a pair and its sentinel, and waits until the sentinel knows both
// servers.
func StartRedisSentinel(ctx context.Context, cfg RedisConfig) (*RedisSentinel, error) {
	password := redisPassword()
	pair, err := startPair(ctx, cfg, password)
	if err != nil {
		return nil, err
	}
	s := &RedisSentinel{RedisPair: *pair}
	s.Sentinel, err = startRedis(ctx, redisPlan{
		name: "redis sentinel", password: password, sentinel: true,
		lines: []string{
			"sentinel monitor " + masterName + " 127.0.0.1 " + strconv.Itoa(pair.Primary.port) + " 1",
			"sentinel auth-user " + masterName + " " + redisUser,
			"sentinel auth-pass " + masterName + " " + password,
			"sentinel down-after-milliseconds " + masterName + " 1000",
			"sentinel failover-timeout " + masterName + " 10000",
		},
	})
	if err == nil {
		err = s.Sentinel.proc.await(ctx, s.watched)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// watched returns nil if the sentinel knows the replica and could promote it.
func (s *RedisSentinel) watched(ctx context.Context) error {
	out, err := s.Sentinel.Do(ctx, "SENTINEL", "REPLICAS", masterName)
	if err != nil {
		return err
	}
	replicas, _ := out.([]any)
	if len(replicas) != 1 {
		return fmt.Errorf("the sentinel knows %d replicas", len(replicas))
	}
	replica, _ := replicas[0].(map[any]any)
	if replica["flags"] != "slave" || replica["master-link-status"] != "ok" {
		return fmt.Errorf("the sentinel's replica: flags %v, link %v", replica["flags"], replica["master-link-status"])
	}
	return nil
}

// MasterName returns the sentinel's name for the pair.
func (s *RedisSentinel) MasterName() string { return masterName }

// PrimaryAddr asks the sentinel for the address of the present primary.
func (s *RedisSentinel) PrimaryAddr(ctx context.Context) (string, error) {
	out, err := s.Sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return "", err
	}
	parts, _ := out.([]any)
	if len(parts) != 2 {
		return "", fmt.Errorf("the sentinel told %v as the primary's address", out)
	}
	return net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1])), nil
}

// Failover makes the sentinel promote the present replica, and waits until it has. The other server
// follows the new primary some seconds later, or when it is started again.
//
// If a failover is already in progress, for example after a Kill of the primary, Failover waits for
// its end.
func (s *RedisSentinel) Failover(ctx context.Context) error {
	before, err := s.PrimaryAddr(ctx)
	if err != nil {
		return err
	}
	asked := false
	return s.Sentinel.proc.await(ctx, func(ctx context.Context) error {
		// refused during a failover, and while the sentinel has not heard from the replica lately
		if !asked {
			_, err := s.Sentinel.Do(ctx, "SENTINEL", "FAILOVER", masterName)
			asked = err == nil
		}
		now, err := s.PrimaryAddr(ctx)
		if err == nil && now == before {
			err = errors.New("the primary is the same as before")
		}
		return err
	})
}

// Close kills all three servers and removes their data. It is idempotent.
func (s *RedisSentinel) Close() error { return closeAll(s.Sentinel, s.Primary, s.Replica) }

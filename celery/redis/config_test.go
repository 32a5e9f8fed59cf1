package redis_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/celery/redis"
)

// TestConfig refuses settings that cannot work, without the password in the error.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		config redis.Config
		text   string
	}{
		"no URL":     {redis.Config{}, "redis://"},
		"scheme":     {redis.Config{URL: "sentinel://:secret@host/0"}, "rediss://"},
		"bad URL":    {redis.Config{URL: "redis://:secret@host:x/0"}, "not valid"},
		"database":   {redis.Config{URL: "redis://:secret@host/name"}, "number of a database"},
		"parameter":  {redis.Config{URL: "rediss://:secret@host/0?ssl_cert_reqs=none"}, "ssl_cert_reqs"},
		"key prefix": {redis.Config{URL: "redis://:secret@host/0", KeyPrefix: "a*"}, "KeyPrefix"},
		"TTL":        {redis.Config{URL: "redis://:secret@host/0", TTL: -1}, "TTL"},
		"MaxResult":  {redis.Config{URL: "redis://:secret@host/0", MaxResult: -1}, "MaxResult"},
		"Buffer":     {redis.Config{URL: "redis://:secret@host/0", Buffer: -1}, "Buffer"},
	} {
		s, err := redis.New(c.config)
		if err == nil || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			t.Errorf("%s: a store beside an error", name)
		}
	}
	for _, url := range []string{"redis://", "redis://host", "redis://user:secret@host:1/3", "rediss://host/?ssl_cert_reqs=required"} {
		s, err := redis.New(redis.Config{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

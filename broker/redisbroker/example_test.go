package redisbroker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
)

// New does not connect; the first call does. While the server cannot be reached, calls wait until
// their ctx ends.
func ExampleNew() {
	b, err := redisbroker.New(redisbroker.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}, // no server listens there
		Namespace: "letters",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = b.Publish(ctx, "inbox", &broker.Message{ID: "1", Body: []byte("dear reader")})
	fmt.Println(errors.Is(err, broker.ErrUnavailable)) // it was certainly not sent
	fmt.Println(b.Close(context.Background()))
	// Output:
	// true
	// <nil>
}

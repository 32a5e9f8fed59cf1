package main

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInThisProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run(ctx, "mem://", "1 second", time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestAPhraseThatIsNone(t *testing.T) {
	if err := run(t.Context(), "mem://", "a while", time.Minute); err == nil {
		t.Fatal("it was accepted")
	}
}

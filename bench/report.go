package main

// Report is the line that is printed. Values that a workload does not measure are 0.
type Report struct {
	Workload    string `json:"workload"`
	Broker      string `json:"broker"`
	Client      string `json:"client"` // swarmiji, raw, raw-multiple or raw-plain
	N           int    `json:"n"`
	Payload     int    `json:"payload"`
	Concurrency int    `json:"concurrency"`
	Prefetch    int    `json:"prefetch"`
	Results     bool   `json:"results"`
	Events      bool   `json:"events"`
	Metrics     bool   `json:"metrics"`

	Seconds float64 `json:"seconds"` // of the timed part
	Rate    float64 `json:"rate"`    // tasks per second
	// of one Submit, of submission to handler (e2e), or of a round trip
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`          // the 99th percentile of the same times
	AllocsPerTask float64 `json:"allocs_per_task"` // in this process, in the timed part
	RSS           int     `json:"rss_kb"`          // maximum memory of this process
	CPU           float64 `json:"cpu_percent"`     // of one core, in the timed part

	Lost int `json:"events_lost,omitempty"` // e2e: events that did not reach the listener
	// due: from the second at which all tasks were due until the last one has started
	Last      float64 `json:"last_ms,omitempty"`
	Max       float64 `json:"max_ms,omitempty"`       // due: of the single tasks
	Declaring float64 `json:"declaring_ms,omitempty"` // idle: all queues
	// idle: from the start of the consumer until the first task ran
	Opening float64 `json:"opening_ms,omitempty"`
	// idle: the same as CPU, of PostgreSQL's processes
	Server  float64  `json:"server_cpu_percent,omitempty"`
	Delayed *Delayed `json:"delayed,omitempty"`
	Steps   []Step   `json:"steps,omitempty"` // long
}

// Delayed holds the additional measurements of the workload delayed. Rates are in tasks per second.
type Delayed struct {
	Before    float64 `json:"enqueue_before"` // of due tasks, without delayed tasks
	After     float64 `json:"enqueue_after"`  // of due tasks, with all delayed tasks waiting
	First     float64 `json:"first"`          // of the first tenth of the delayed tasks
	Final     float64 `json:"last"`           // of the last tenth
	RSSBefore int     `json:"rss_before_kb"`  // maximum memory of a consumer of the due tasks
	RSSAfter  int     `json:"rss_after_kb"`   // the same, with all delayed tasks waiting
	Drain     float64 `json:"drain_before"`   // of the due tasks, by that consumer
	DrainLate float64 `json:"drain_after"`    // the same, with all delayed tasks waiting
	// of one core, by that consumer with all delayed tasks waiting
	Idle     float64 `json:"idle_percent"`
	Slow     int     `json:"slow"`            // commands that blocked the server for more than 10 ms
	Slowest  float64 `json:"slowest_ms"`      // the slowest of them
	SlowName string  `json:"slowest_command"` // command and last argument of the slowest
}

func (r *Report) describe(cfg *config) {
	r.Workload, r.Broker, r.Payload, r.Concurrency = cfg.Workload, cfg.address(), cfg.Payload, cfg.Concurrency
	r.Prefetch, r.Results, r.Events, r.Metrics = cfg.Prefetch, cfg.Results, cfg.Events, cfg.Metrics
	r.Client = "swarmiji"
	if cfg.Raw {
		r.Client = "raw"
	}
	if cfg.Multiple {
		r.Client = "raw-multiple"
	}
	if cfg.Plain {
		r.Client = "raw-plain"
	}
	if r.RSS == 0 {
		r.RSS = peakRSS()
	}
}

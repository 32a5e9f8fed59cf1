package main

// Report is the line that is printed. What a workload does not measure is 0.
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

	Seconds       float64 `json:"seconds"`         // of the timed part
	Rate          float64 `json:"rate"`            // tasks per second
	P50           float64 `json:"p50_ms"`          // of one Submit, of submission to handler (e2e), or of a round trip
	P99           float64 `json:"p99_ms"`          //
	AllocsPerTask float64 `json:"allocs_per_task"` // in this process, in the timed part
	RSS           int     `json:"rss_kb"`          // the most this process ever used
	CPU           float64 `json:"cpu_percent"`     // of one core, in the timed part

	Lost      int      `json:"events_lost,omitempty"`  // e2e: events that the listener did not get
	Last      float64  `json:"last_ms,omitempty"`      // due: from the second at which all were due until the last has started
	Max       float64  `json:"max_ms,omitempty"`       // due: of the single tasks
	Declaring float64  `json:"declaring_ms,omitempty"` // idle: all queues
	Opening   float64  `json:"opening_ms,omitempty"`   // idle: from the start of the consumer until the first task ran
	Delayed   *Delayed `json:"delayed,omitempty"`
}

// Delayed is what the workload of that name measures beside. Rates are tasks per second.
type Delayed struct {
	Before    float64 `json:"enqueue_before"`  // of due tasks, while none was delayed
	After     float64 `json:"enqueue_after"`   // of due tasks, with all of them waiting
	First     float64 `json:"first"`           // of the first tenth of the delayed tasks
	Final     float64 `json:"last"`            // of the last tenth
	RSSBefore int     `json:"rss_before_kb"`   // the most that a consumer of the due tasks used
	RSSAfter  int     `json:"rss_after_kb"`    //
	Drain     float64 `json:"drain_before"`    // of the due tasks, by that consumer
	DrainLate float64 `json:"drain_after"`     //
	Idle      float64 `json:"idle_percent"`    // of one core, by that consumer with all of them waiting
	Slow      int     `json:"slow"`            // commands that kept the server for more than 10 ms
	Slowest   float64 `json:"slowest_ms"`      // of them
	SlowName  string  `json:"slowest_command"` //
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

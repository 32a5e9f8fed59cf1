package main

// Report is the line that is printed. What a workload does not measure is 0.
type Report struct {
	Workload    string `json:"workload"`
	Broker      string `json:"broker"`
	Client      string `json:"client"` // swarmiji, raw, or raw-multiple
	N           int    `json:"n"`
	Payload     int    `json:"payload"`
	Concurrency int    `json:"concurrency"`
	Prefetch    int    `json:"prefetch"`
	Results     bool   `json:"results"`
	Events      bool   `json:"events"`

	Seconds       float64 `json:"seconds"`         // of the timed part
	Rate          float64 `json:"rate"`            // tasks per second
	P50           float64 `json:"p50_ms"`          // of one Submit, of submission to handler (e2e), or of a round trip
	P99           float64 `json:"p99_ms"`          //
	AllocsPerTask float64 `json:"allocs_per_task"` // in this process, in the timed part
	RSS           int     `json:"rss_kb"`          // the most this process ever used
	CPU           float64 `json:"cpu_percent"`     // of one core, in the timed part
}

func (r *Report) describe(cfg *config) {
	r.Workload, r.Broker, r.Payload, r.Concurrency = cfg.Workload, cfg.address(), cfg.Payload, cfg.Concurrency
	r.Prefetch, r.Results, r.Events = cfg.Prefetch, cfg.Results, cfg.Events
	r.Client = "swarmiji"
	if cfg.Raw {
		r.Client = "raw"
	}
	if cfg.Multiple {
		r.Client = "raw-multiple"
	}
	r.RSS = peakRSS()
}

package sqllimit

import "github.com/swarmiji/swarmiji/internal/sqlconn"

// connection returns the settings of the connection.
func (c *Config) connection() sqlconn.Config {
	return sqlconn.Config{
		Engine: c.Engine, URL: c.URL, TLS: c.TLS, Name: c.Name, Backoff: c.Backoff, Logger: c.Logger,
		// The statements rely on their indexes. A plan that the server makes for an empty table
		// would scan a full table.
		Settings: map[string]string{
			"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
			"enable_hashjoin": "off", "enable_mergejoin": "off",
		},
	}
}

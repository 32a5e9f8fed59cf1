// Package redisbroker keeps queues in Redis.
package redisbroker

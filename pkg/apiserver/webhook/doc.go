// Package webhook calls external services: token reviews, access reviews, the audit
// webhook, and the webhooks that objects describe. The services are not trusted to be
// fast or available: calls are limited in time, response size and concurrency.
package webhook

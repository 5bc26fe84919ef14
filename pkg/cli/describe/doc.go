// Package describe writes descriptions of objects for users: specification,
// status and events.
package describe

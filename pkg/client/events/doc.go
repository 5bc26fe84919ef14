// Package events writes core/v1 Events about what a daemon did to an object.
// Recording never blocks and never fails: events that cannot be written in time, or
// that exceed an object's rate, are dropped and counted.
package events

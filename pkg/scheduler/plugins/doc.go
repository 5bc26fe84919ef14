// Package plugins lists what the scheduler asks, a folder a plugin. The order
// of the filters is upstream's: the first that refuses a node gives the reason.
package plugins

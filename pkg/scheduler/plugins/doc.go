// Package plugins lists the plugins of the scheduler; each has a folder of its own. The first
// filter that rejects a node supplies the reason.
package plugins

// Package blank creates machines that have nothing of Podium yet: containers with systemd, on
// which tests install the package as operators do.
package blank

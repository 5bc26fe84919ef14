// Package crifake is a working container runtime in memory: sandboxes and
// containers that live, exit and are stopped by a script, images that are there
// or must be pulled, faults and delays. It knows no process and no file; time is
// package time's, so that under testing/synctest a year passes in a moment.
package crifake

// Package crifake is a container runtime in memory: sandboxes, containers that
// run, exit and stop as a script determines, images that are present or must be
// pulled, faults and latencies. It uses no processes, and no files but those of
// checkpoints. Its clock is package time, so that tests can run it under
// testing/synctest.
package crifake

// Package operator performs the tasks of operators on node containers with systemd as their
// first process: it installs the package, follows deploy/README.md, loses and restores a
// control plane, and removes everything.
package operator

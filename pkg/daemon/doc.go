// Package daemon holds what all main functions share: flags and the config file, logs,
// signals, health, metrics, serving, and the messages to systemd.
package daemon

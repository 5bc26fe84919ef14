// Package upgrade decides whether a machine may be upgraded, and in which order the
// machines of a cluster are (Survey), and records the phases of an upgrade (Journal).
// Package machine collects the survey and performs the upgrade.
package upgrade

// Package cronjob creates the Jobs of CronJobs when they are due, keeps the list of those
// that run, and deletes finished ones beyond the history limits.
//
// The name of a Job is that of the CronJob and the minute that it was scheduled for, so that
// no run is started twice. A Job that was created and not yet listed in the status, because a
// crash came between, is recognized by its name and entered into the status.
package cronjob

// Package quota computes what objects use of a ResourceQuota, for the admission
// plugin that enforces quotas and the controller that corrects their usage.
package quota

"""Values that every layer speaks of: records, jobs, tickets, hits, filters, reports."""

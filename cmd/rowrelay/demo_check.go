package main

import (
	"context"
	"errors"
	"fmt"
)

// verdict is what came of the promise.
type verdict struct {
	committed, arrived, duplicates, customers int
	broken                                    []string
}

// judge compares the shop's record with what arrived, in its order.
func judge(book map[string]int, arrivals []arrival) verdict {
	v := verdict{customers: len(book)}
	for _, count := range book {
		v.committed += count
	}
	last, seen := map[string]int{}, map[string]order{}
	for _, a := range arrivals {
		if first, again := seen[a.id]; again {
			v.duplicates++
			v.breaks(first != a.order, "message %s arrived twice with different orders", a.id)
			continue
		}
		seen[a.id] = a.order
		v.arrived++
		v.breaks(a.id == "", "an order of %s arrived without a message id", a.order.Customer)
		v.breaks(a.order.Number < 1 || a.order.Number > book[a.order.Customer], "order %d of %s arrived, which was never committed", a.order.Number, a.order.Customer)
		v.breaks(a.order.Number != last[a.order.Customer]+1, "order %d of %s arrived after order %d", a.order.Number, a.order.Customer, last[a.order.Customer])
		last[a.order.Customer] = a.order.Number
	}
	for customer, count := range book {
		v.breaks(last[customer] != count, "%s's last order to arrive is %d of %d", customer, last[customer], count)
	}
	v.breaks(v.arrived != v.committed, "%d orders were committed, and %d arrived", v.committed, v.arrived)
	return v
}

func (v *verdict) breaks(broken bool, format string, args ...any) {
	if broken {
		v.broken = append(v.broken, fmt.Sprintf(format, args...))
	}
}

// conclude checks the promise and tells.
func (d *demo) conclude(ctx context.Context) error {
	book, err := d.shop.book(ctx)
	if err != nil {
		return err
	}
	v := judge(book, d.endpoint.taken())
	_, rolledBack := d.shop.counts()
	_, failures := d.endpoint.counts()
	d.say("\nThe shop committed %d orders and rolled %d back; the endpoint failed %d times.", v.committed, rolledBack, failures)
	if len(v.broken) > 0 {
		for _, line := range v.broken {
			d.say("  broken: %s", line)
		}
		return errors.New("the promise was broken")
	}
	d.say("  delivered    all %d committed orders, none of those rolled back", v.arrived)
	d.say("  order        kept for each of %d customers", v.customers)
	d.say("  duplicates   %d, each with the message id of the first", v.duplicates)
	d.say("The promise holds.")
	return nil
}

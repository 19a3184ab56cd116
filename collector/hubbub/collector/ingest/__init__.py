"""From a request to a durable batch: the public routes and what stands behind them."""

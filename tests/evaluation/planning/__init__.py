"""The planner's theory against simulation: at the predicted limit, how often is a string found?"""
